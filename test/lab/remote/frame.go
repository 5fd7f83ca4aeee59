package remote

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

type kind byte

// The kinds of frames. An empty stdin frame is the end of the command's input.
const (
	hello   kind = 'h' // server: Hello
	request kind = 'q' // client: Request
	stdin   kind = 'i' // client
	stdout  kind = 'o' // server
	stderr  kind = 'e' // server
	exit    kind = 'x' // server: Exit, the last frame
)

// Port is where the server listens in the machine.
const Port = 2222

// maxFrame bounds what a peer makes us allocate.
const maxFrame = 1 << 20

// Hello is what the server says first.
type Hello struct {
	BootID string `json:"bootID"`
}

// Request is the command to run.
type Request struct {
	// Args is the command and its arguments; one without a slash is looked up in the server's PATH.
	Args []string `json:"args"`
	// Env are added to the server's own environment, as "NAME=value".
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; empty means /.
	Dir string `json:"dir,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	// Code is the exit status, or -1.
	Code int `json:"code"`
	// Reason says why there is no exit status: a signal, or a command that could not be started.
	Reason string `json:"reason,omitempty"`
}

// frames sends and receives. Sending is safe for concurrent use.
type frames struct {
	mu sync.Mutex // one frame at a time
	rw io.ReadWriter
}

func (f *frames) send(k kind, payload []byte) error {
	head := make([]byte, 5, 5+len(payload))
	head[0] = byte(k)
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.rw.Write(append(head, payload...))
	return err
}

func (f *frames) sendJSON(k kind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.send(k, payload)
}

func (f *frames) receive() (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(f.rw, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes is longer than %d", size, maxFrame)
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(f.rw, payload)
	return kind(head[0]), payload, err
}

// expect receives a frame of one kind and decodes it.
func (f *frames) expect(want kind, v any) error {
	got, payload, err := f.receive()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("frame of kind %q, not %q", got, want)
	}
	return json.Unmarshal(payload, v)
}

// stream is a writer whose writes become frames of one kind.
type stream struct {
	frames *frames
	kind   kind
}

func (s stream) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := s.frames.send(s.kind, p[:n]); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}
