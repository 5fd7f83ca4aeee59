package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDevicesChecksWhatTheVMSees against the claims.
func TestDevicesChecksWhatTheVMSees(t *testing.T) {
	sys := t.TempDir()
	at := filepath.Join(sys, "bus/pci/devices/0000:01:00.0")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n"} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const line = `{"functions":[{"address":"0000:01:00.0","vendor":"10de","device":"2330","class":"030200"}]}` + "\n"
	for device, want := range map[string]int{"2330": 0, "2331": exitFailed} {
		dir := metadataFile(t, "resourceclaims/c/gpu/kata-vfio.dev-metadata.json", "gpu",
			`{"driver":"kata-vfio.dev","pool":"n","name":"g","attributes":{"vendor":{"string":"10de"},"device":{"string":"`+device+`"}}}`)
		if stdout, stderr, code := execute(t, "devices", "--sysfs", sys, "--check", "--metadata-dir", dir); code != want || stdout != line {
			t.Errorf("a claim for %s: got exit code %d, %q; want %d\n%s", device, code, stdout, want, stderr)
		}
	}
	if stdout, stderr, code := execute(t, "devices", "--sysfs", sys, "--check", "--metadata-dir", t.TempDir()); code != exitUsage {
		t.Errorf("without a claim: got exit code %d, %q; want %d\n%s", code, stdout, exitUsage, stderr)
	}
	if stdout, _, code := execute(t, "devices", "--sysfs", sys); code != 0 || stdout != line {
		t.Errorf("without --check: got exit code %d, %q", code, stdout)
	}
}
