package kernelargs_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// tree is a node's files.
type tree map[string]string

func (t tree) Text(name string) string { return t[name] }

func (t tree) Names(dir string) []string {
	var names []string
	for name := range t {
		rest, below := strings.CutPrefix(name, dir+"/")
		if first, _, _ := strings.Cut(rest, "/"); below && !slices.Contains(names, first) {
			names = append(names, path.Base(first))
		}
	}
	slices.Sort(names)
	return names
}

func TestCommandLinesOfLaterBootsAreReadWithTheirPlaces(t *testing.T) {
	const grub, site = "etc/default/grub", "etc/default/grub.d/99-site.cfg"
	for name, c := range map[string]struct {
		files tree
		want  []string
	}{
		"a plain assignment":             {tree{grub: "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"quiet intremap=off\"\n"}, []string{grub + ":2 quiet intremap=off"}},
		"a comment after it":             {tree{grub: "GRUB_CMDLINE_LINUX=\"quiet intremap=off\" # for the old BIOS\n"}, []string{grub + ":1 quiet intremap=off"}},
		"appended":                       {tree{grub: "GRUB_CMDLINE_LINUX=quiet\nGRUB_CMDLINE_LINUX+=\" intremap=off\"\n"}, []string{grub + ":1 quiet", grub + ":2 intremap=off"}},
		"appended to nothing":            {tree{grub: "GRUB_CMDLINE_LINUX+=\" intremap=off\"\n"}, []string{grub + ":1 intremap=off"}},
		"exported":                       {tree{grub: "export GRUB_CMDLINE_LINUX=\"intremap=off\"\n"}, []string{grub + ":1 intremap=off"}},
		"declared":                       {tree{grub: "declare -x GRUB_CMDLINE_LINUX='intremap=off'\n"}, []string{grub + ":1 intremap=off"}},
		"a continued line":               {tree{grub: "GRUB_CMDLINE_LINUX=\"quiet \\\nintremap=off\"\n"}, []string{grub + ":1 quiet", grub + ":2 intremap=off"}},
		"a quoted line break":            {tree{grub: "GRUB_CMDLINE_LINUX='quiet\nintremap=off'\n"}, []string{grub + ":1 quiet", grub + ":2 intremap=off"}},
		"after another command":          {tree{grub: "GRUB_TIMEOUT=5; GRUB_CMDLINE_LINUX=intremap=off\n"}, []string{grub + ":1 intremap=off"}},
		"a word in several quotes":       {tree{grub: "GRUB_CMDLINE_LINUX=quiet' int'\"remap\"=off\n"}, []string{grub + ":1 quiet intremap=off"}},
		"an escaped space":               {tree{grub: "GRUB_CMDLINE_LINUX=quiet\\ intremap=off\n"}, []string{grub + ":1 quiet intremap=off"}},
		"if a condition holds":           {tree{grub: "GRUB_CMDLINE_LINUX=quiet\n[ -e /x ] && GRUB_CMDLINE_LINUX=intremap=off\n"}, []string{grub + ":1 quiet", grub + ":2 intremap=off"}},
		"for one command only":           {tree{grub: "GRUB_CMDLINE_LINUX=intremap=off\nGRUB_CMDLINE_LINUX=\"\" true\n"}, []string{grub + ":1 intremap=off"}},
		"in a branch":                    {tree{grub: "GRUB_CMDLINE_LINUX=quiet\nif true; then\n\tGRUB_CMDLINE_LINUX=intremap=off\nfi\n"}, []string{grub + ":1 quiet", grub + ":3 intremap=off"}},
		"a default":                      {tree{grub: ": ${GRUB_CMDLINE_LINUX:=\"intremap=off\"}\n"}, []string{grub + ":1 intremap=off"}},
		"a variable of its own":          {tree{grub: "EXTRA=\"intremap=off\"\n# x\nGRUB_CMDLINE_LINUX=\"quiet $EXTRA\"\n"}, []string{grub + ":3 quiet", grub + ":1 intremap=off"}},
		"a value from a variable":        {tree{grub: "V=off\nGRUB_CMDLINE_LINUX=\"intremap=${V}\"\n"}, []string{grub + ":2 intremap=off"}},
		"a sourced file":                 {tree{grub: ". /etc/site\n", "etc/site": "\nGRUB_CMDLINE_LINUX=intremap=off\n"}, []string{"etc/site:2 intremap=off"}},
		"a file that sources itself":     {tree{grub: ". /etc/default/grub\nGRUB_CMDLINE_LINUX=intremap=off\n"}, []string{grub + ":2 intremap=off"}},
		"replaced by a later fragment":   {tree{grub: "GRUB_CMDLINE_LINUX=intremap=off\n", site: "GRUB_CMDLINE_LINUX=\"net.ifnames=0\"\n"}, []string{site + ":1 net.ifnames=0"}},
		"extended by a later fragment":   {tree{grub: "GRUB_CMDLINE_LINUX=quiet\n", site: "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intremap=off\"\n"}, []string{grub + ":1 quiet", site + ":1 intremap=off"}},
		"extended only where it is set":  {tree{grub: "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }\\$tuned_params\"\n"}, []string{grub + ":1 quiet", grub + ":2 $tuned_params"}},
		"a comment alone":                {tree{grub: "# GRUB_CMDLINE_LINUX=\"intremap=off\"\n"}, nil},
		"what a command prints":          {tree{grub: "GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\nGRUB_CMDLINE_LINUX=\"a $(b \"c\") d\"\n"}, []string{grub + ":2 a d"}},
		"another variable":               {tree{grub: "GRUB_CMDLINE_LINUX_RECOVERY=\"intremap=off\"\nMY_GRUB_CMDLINE_LINUX=intremap=off\n"}, nil},
		"an entry":                       {tree{"boot/loader/entries/a.conf": "title x\noptions quiet intremap=off\n"}, []string{"boot/loader/entries/a.conf:2 quiet intremap=off"}},
		"an entry with a tab":            {tree{"boot/loader/entries/a.conf": "title x\noptions\tquiet intremap=off\n"}, []string{"boot/loader/entries/a.conf:2 quiet intremap=off"}},
		"what is init's":                 {tree{"efi/loader/entries/a.conf": "options quiet -- intremap=off\n"}, []string{"efi/loader/entries/a.conf:1 quiet"}},
		"a value with spaces":            {tree{"boot/loader/entries/a.conf": "options x=\"a b\" y\n"}, []string{"boot/loader/entries/a.conf:1 x=\"a b\" y"}},
		"GRUB's environment":             {tree{"boot/loader/entries/a.conf": "options $kernelopts ro\n", "boot/grub2/grubenv": "# GRUB Environment Block\nkernelopts=quiet intremap=off\n"}, []string{"boot/grub2/grubenv:2 quiet intremap=off", "boot/loader/entries/a.conf:1 ro"}},
		"GRUB's environment by firmware": {tree{"boot/loader/entries/a.conf": "options $kernelopts\n", "boot/efi/EFI/redhat/grubenv": "kernelopts=intremap=off\n"}, []string{"boot/efi/EFI/redhat/grubenv:1 intremap=off"}},
		"a variable of GRUB's script":    {tree{"boot/loader/entries/a.conf": "options ro $tuned_params\n", "boot/grub2/grub.cfg": "set tuned_params=\"intremap=off\"\n"}, []string{"boot/loader/entries/a.conf:1 ro", "boot/grub2/grub.cfg:1 intremap=off"}},
		"the generated configuration":    {tree{"boot/grub/grub.cfg": "menuentry x {\n\tlinux /vmlinuz root=UUID=0 intremap=off\n}\n"}, []string{"boot/grub/grub.cfg:2 /vmlinuz root=UUID=0 intremap=off"}},
		"tuned":                          {tree{"etc/tuned/bootcmdline": "TUNED_BOOT_CMDLINE=\"iommu=pt\"\nTUNED_BOOT_INITRD_ADD=\"\"\n"}, []string{"etc/tuned/bootcmdline:1 iommu=pt"}},
		"Limine's settings":              {tree{"etc/default/limine": "KERNEL_CMDLINE[default]=\"quiet\"\nKERNEL_CMDLINE[linux-lts]+=\"iommu=pt\"\nX[1=2\n"}, []string{"etc/default/limine:1 quiet", "etc/default/limine:2 iommu=pt"}},
		"rEFInd":                         {tree{"boot/refind_linux.conf": "# iommu=off\n\"Boot iommu=off\"  \"ro iommu=pt dyndbg=\"\"a b\"\" x\" \"y\"\n\"Boot\" ro\n\"Boot\n\"\" \"z"}, []string{"boot/refind_linux.conf:2 ro iommu=pt dyndbg=\"a b\" x", "boot/refind_linux.conf:3 ro", "boot/refind_linux.conf:5 z"}},
		"Garden Linux":                   {tree{"etc/kernel/cmdline.d/10-a.cfg": "CMDLINE_LINUX=\"ro\"\n", "etc/kernel/cmdline.d/90-b.cfg": "CMDLINE_LINUX=\"$CMDLINE_LINUX iommu=pt\"\n"}, []string{"etc/kernel/cmdline.d/10-a.cfg:1 ro", "etc/kernel/cmdline.d/90-b.cfg:1 iommu=pt"}},
		"update-extlinux":                {tree{"etc/update-extlinux.conf": "overwrite=1\ndefault_kernel_opts=\"quiet iommu=pt\"\n"}, []string{"etc/update-extlinux.conf:2 quiet iommu=pt"}},
		"kernel-install":                 {tree{"etc/kernel/cmdline": "root=/dev/sda1\nintremap=off\n", "usr/lib/kernel/cmdline": "x\n"}, []string{"etc/kernel/cmdline:1 root=/dev/sda1", "etc/kernel/cmdline:2 intremap=off"}},
		"kernel-install, the vendor's":   {tree{"usr/lib/kernel/cmdline": "intremap=off\n"}, []string{"usr/lib/kernel/cmdline:1 intremap=off"}},
		"extlinux":                       {tree{"boot/extlinux/extlinux.conf": "LABEL l0\n\tAPPEND ro intremap=off\n"}, []string{"boot/extlinux/extlinux.conf:2 ro intremap=off"}},
		"Armbian":                        {tree{"boot/armbianEnv.txt": "verbosity=1\nextraargs=iommu.passthrough=1 x\n"}, []string{"boot/armbianEnv.txt:2 iommu.passthrough=1 x"}},
		"Flatcar":                        {tree{"oem/grub.cfg": "set oem_id=\"qemu\"\nset linux_append=\"$linux_append intremap=off\"\n"}, []string{"oem/grub.cfg:2 intremap=off"}},
		"Harvester":                      {tree{"etc/cos/bootargs.cfg": "set kernelcmd=\"root=LABEL=$label iommu=pt $third_party_kernel_args\"\n", "oem/grubenv": "third_party_kernel_args=multipath=off iommu=nopt\n"}, []string{"etc/cos/bootargs.cfg:1 root=LABEL= iommu=pt", "oem/grubenv:1 multipath=off iommu=nopt"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range kernelargs.AllSources(c.files).Read(c.files) {
				got = append(got, fmt.Sprintf("%s:%d %s", l.Path, l.Number, l.Value))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What replaces a variable is known by its place.
func TestReplacedVariableNamesWhatReplacedIt(t *testing.T) {
	files := tree{"a": "X=1\n", "b": "# b\nX=\"$X 2\"\n", "c": "if true; then X=3; fi\n", "d": "\nX=4\n"}
	settings := (&kernelargs.Sources{Settings: slices.Sorted(maps.Keys(files))}).Evaluate(files)
	if got, want := settings.Replaced("X"), (kernelargs.Line{Path: "d", Number: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	delete(files, "d")
	if got := (&kernelargs.Sources{Settings: slices.Sorted(maps.Keys(files))}).Evaluate(files).Replaced("X"); got != (kernelargs.Line{}) {
		t.Errorf("without the last file: %+v", got)
	}
}

// No script makes the reader fail, and each word is one of a line of the file.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{"X=\"a $X ${X:-b}\" # c", "X=$(a \"`b`\")", "if X='", "${", "\\", "$", "X=${X:=\"$X\"}", ". a", "X=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\nX=$X$X$X$X\n", "${X:-${X:-${X:-${X:-${X:-${X:-${X:-${X:-${X:-a}}}}}}}}}", "case x in *) X=1;; esac"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		files := tree{"etc/default/grub": text}
		for _, l := range (&kernelargs.Sources{Settings: []string{"etc/default/grub"}, Variables: []string{"X"}}).Read(files) {
			if l.Number < 1 || l.Number > strings.Count(text, "\n")+1 {
				t.Errorf("%q: %+v", text, l)
			}
		}
	})
}

// TestHostileSettings: a captured node's file, read from an archive, must not end the auditor's process.
func TestHostileSettings(t *testing.T) {
	deep := func(part string) string { return "A=" + strings.Repeat(part, (64<<20)/len(part)) }
	long := strings.Repeat("x", 1<<15)
	for name, text := range map[string]string{
		"parameters in each other":           deep("${"),
		"parameters in quotes in each other": deep(`"${`),
		"commands in each other":             deep("$("),
		"a value that doubles":               "A=" + long + "\n" + strings.Repeat("A=\"${A}${A}\"\n", 64),
		"assignments before a command":       strings.Repeat("A=1 ", 1<<18) + "true",
		"additions":                          strings.Repeat("A+=1 ", 1<<18),
		"additions under a condition":        "if x; then " + strings.Repeat("A=\"$A 1\" ", 1<<18),
		"a value many times":                 strings.Repeat("B+=1 ", 1<<12) + "\nA=" + strings.Repeat("$B", 1<<20),
		"a file that sources itself":         strings.Repeat(". /etc/default/../default/grub\n", 20),
		"files that source each other":       strings.Repeat(". a\n. b\n. c\n. d\n. e\n. f\n. g\n. h\n", 16),
	} {
		began, sourced := time.Now(), 0
		s := kernelargs.NewSettings(func(string) string { sourced++; return text })
		s.Source("etc/default/grub", text)
		if took := time.Since(began); took > time.Minute || sourced > 1<<12 {
			t.Errorf("%s: took %s, and sourced %d files", name, took, sourced)
		}
		if got := len(s.Text("A")); got > 1<<16 {
			t.Errorf("%s: a value of %d bytes", name, got)
		}
	}
}
