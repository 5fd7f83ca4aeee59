package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/mod/module"
)

const repository = "https://github.com/kata-vfio/kata-vfio"

// bom is an SBOM that grows.
type bom struct {
	document spdxDocument
	ids      map[module.Version]string // of the modules that are in it
	cache    *moduleCache
	lawyer   *lawyer
	sums     map[module.Version]string
}

// writeSBOM writes one for all programs. Images and packages have the same programs in them, and nothing else that runs.
func writeSBOM(output string, src source, programs []program, cache *moduleCache) error {
	l, err := newLawyer()
	if err != nil {
		return err
	}
	b := bom{ids: map[module.Version]string{}, cache: cache, lawyer: l, sums: map[module.Version]string{}}
	b.document = spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: "kata-vfio-" + src.version,
		DocumentNamespace: fmt.Sprintf("%s/spdx/%s-%x", repository, src.version, fingerprint(programs)),
		CreationInfo: spdxCreation{
			Created: src.time.UTC().Format("2006-01-02T15:04:05Z"), Creators: []string{"Organization: kata-vfio", "Tool: kata-vfio-release"},
		},
	}
	for i := range programs {
		if err := b.program(&programs[i], src); err != nil {
			return err
		}
	}
	content, err := json.MarshalIndent(b.document, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(output, b.document.Name+".spdx.json"), append(content, '\n'), 0o644)
}

// fingerprint returns a hash of the programs, which makes the document's name unique to them.
func fingerprint(programs []program) []byte {
	h := sha256.New()
	for i := range programs {
		fmt.Fprintf(h, "%x %s %s\n", sha256.Sum256(programs[i].content), programs[i].platform(), programs[i].name)
	}
	return h.Sum(nil)[:16]
}

// program adds a program and what is in it.
func (b *bom) program(p *program, src source) error {
	id := fmt.Sprintf("SPDXRef-Program-%s-%s", strings.ReplaceAll(p.name, "_", "."), p.platform())
	b.document.Packages = append(b.document.Packages, spdxPackage{
		Name: p.name, SPDXID: id, VersionInfo: src.version, PackageFileName: p.platform() + "/" + p.file(),
		Supplier: "Organization: kata-vfio", PrimaryPackagePurpose: "APPLICATION",
		DownloadLocation: "git+" + repository + "@" + src.revision,
		Checksums:        []spdxChecksum{{Algorithm: "SHA256", Value: fmt.Sprintf("%x", sha256.Sum256(p.content))}},
		SourceInfo:       "compiled for " + p.os + "/" + p.arch + " of commit " + src.revision + " by " + p.build.GoVersion,
		LicenseConcluded: "Apache-2.0", LicenseDeclared: "Apache-2.0", CopyrightText: noAssertion,
		ExternalRefs: []spdxReference{purl(p.build.Main.Path, src.version)},
	})
	b.relate(documentID, "DESCRIBES", id)
	for _, m := range p.build.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.sums[module.Version{Path: m.Path, Version: m.Version}] = m.Sum
	}
	for _, m := range modules(p.build) {
		other, err := b.module(m)
		if err != nil {
			return err
		}
		b.relate(id, "DEPENDS_ON", other)
	}
	return nil
}

// module adds a module that is not there yet, and returns its ID.
func (b *bom) module(m module.Version) (string, error) {
	if id, known := b.ids[m]; known {
		return id, nil
	}
	texts, err := b.cache.texts(m)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("SPDXRef-Module-%d", len(b.ids)+1)
	b.ids[m] = id
	pkg := spdxPackage{
		Name: m.Path, SPDXID: id, VersionInfo: m.Version, Supplier: noAssertion, PrimaryPackagePurpose: "LIBRARY",
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: b.lawyer.expression(texts),
		CopyrightText: noAssertion, ExternalRefs: []spdxReference{purl(m.Path, strings.TrimPrefix(m.Version, "go"))},
	}
	if sum := b.sums[m]; sum != "" {
		pkg.SourceInfo = "go.sum: " + sum
	}
	b.document.Packages = append(b.document.Packages, pkg)
	return id, nil
}

func (b *bom) relate(from, how, to string) {
	b.document.Relationships = append(b.document.Relationships, spdxRelationship{From: from, Type: how, To: to})
}

// purl is a package URL, by which scanners look for known vulnerabilities.
func purl(path, version string) spdxReference {
	locator := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return spdxReference{Category: "PACKAGE-MANAGER", Type: "purl", Locator: locator}
}
