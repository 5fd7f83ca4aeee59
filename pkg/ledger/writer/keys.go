package writer

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// loadKeys reads the node's keys, or makes them for a ledger that has none yet.
// The lock is held.
func (w *Writer) loadKeys() error {
	secret, err := os.ReadFile(w.path(ledger.PrivateKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = w.makeKey()
	}
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if err := w.useKey(strings.TrimSpace(string(secret))); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	w.names, err = w.loadPseudonyms()
	return err
}

// makeKey creates the key of a new ledger. A ledger that lost its key can't be continued.
func (w *Writer) makeKey() ([]byte, error) {
	names, err := w.segments()
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		return nil, &ledger.DamagedError{File: ledger.PrivateKeyFile, Seq: -1, What: "the private key is missing, and the ledger can't be continued without it"}
	}
	secret, _, err := note.GenerateKey(rand.Reader, ledger.OriginPrefix+w.config.Node)
	if err != nil {
		return nil, err
	}
	data := []byte(secret + "\n")
	return data, w.replace(ledger.PrivateKeyFile, data, 0o600)
}

// useKey sets the key that signs. It writes the file of the public key if it is missing, and returns an error if that file has another key.
func (w *Writer) useKey(secret string) (err error) {
	if w.signer, err = note.NewSigner(secret); err != nil {
		return err
	}
	public, err := publicKey(secret)
	if err != nil {
		return err
	}
	if w.verifier, err = note.NewVerifier(public); err != nil {
		return err
	}
	beside, err := os.ReadFile(w.path(ledger.PublicKeyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return w.replace(ledger.PublicKeyFile, []byte(public+"\n"), 0o644)
	case err != nil:
		return err
	case string(beside) != public+"\n":
		return &ledger.DamagedError{File: ledger.PublicKeyFile, Line: 1, Seq: -1, What: "it is not the public half of the node's key"}
	}
	return nil
}

// publicKey returns the public key of a private key in the form "PRIVATE+KEY+<name>+<hash>+<algorithm and seed>" (package note).
func publicKey(secret string) (string, error) {
	fields := strings.SplitN(secret, "+", 5)
	if len(fields) != 5 {
		return "", errors.New("malformed")
	}
	key, err := base64.StdEncoding.DecodeString(fields[4])
	// The byte before the seed is the algorithm.
	if err != nil || len(key) != 1+ed25519.SeedSize {
		return "", errors.New("malformed")
	}
	public, ok := ed25519.NewKeyFromSeed(key[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("not an Ed25519 key")
	}
	return note.NewEd25519VerifierKey(fields[2], public)
}

// loadPseudonyms reads the key of the pseudonyms, or creates it if the config asks for one. It returns nil without a
// key.
func (w *Writer) loadPseudonyms() (*ledger.Pseudonyms, error) {
	data, err := os.ReadFile(w.path(ledger.PseudonymsFile))
	if err == nil {
		return ledger.ParsePseudonyms(string(data))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !w.config.Pseudonyms {
		return nil, nil
	}
	key := make([]byte, ledger.PseudonymKeySize)
	_, _ = rand.Read(key) // which never fails
	p, err := ledger.NewPseudonyms(key)
	if err != nil {
		return nil, err
	}
	return p, w.replace(ledger.PseudonymsFile, []byte(p.String()+"\n"), 0o600)
}

// MachineHash returns a keyed hash of the machine's id (/etc/machine-id), which is confidential and must not be used as
// it is, see machine-id(5). It is empty for an empty id.
func MachineHash(id string) string {
	if id == "" {
		return ""
	}
	h := hmac.New(sha256.New, []byte(id))
	h.Write([]byte("kata-vfio.dev/ledger"))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
