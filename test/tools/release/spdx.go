package main

const documentID = "SPDXRef-DOCUMENT"

// The parts of SPDX 2.3 that an SBOM has here, under the names of its JSON form.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}

	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}

	spdxPackage struct {
		Name                  string          `json:"name"`
		SPDXID                string          `json:"SPDXID"`
		VersionInfo           string          `json:"versionInfo"`
		PackageFileName       string          `json:"packageFileName,omitempty"`
		Supplier              string          `json:"supplier"`
		DownloadLocation      string          `json:"downloadLocation"`
		FilesAnalyzed         bool            `json:"filesAnalyzed"`
		Checksums             []spdxChecksum  `json:"checksums,omitempty"`
		SourceInfo            string          `json:"sourceInfo,omitempty"`
		LicenseConcluded      string          `json:"licenseConcluded"`
		LicenseDeclared       string          `json:"licenseDeclared"`
		CopyrightText         string          `json:"copyrightText"`
		PrimaryPackagePurpose string          `json:"primaryPackagePurpose"`
		ExternalRefs          []spdxReference `json:"externalRefs"`
	}

	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}

	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}

	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)
