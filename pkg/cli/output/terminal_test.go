package output_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func TestVisibleWritesOutWhatIsObeyed(t *testing.T) {
	for about, c := range map[string]struct{ text, want string }{
		"plain text":          {`pf eno1 é 数 ✓ \x1b`, `pf eno1 é 数 ✓ \x1b`},
		"a color":             {"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		"one-character CSI":   {"\u009b2J", `\x9b2J`},
		"a link (OSC 8)":      {"\x1b]8;;http://x\x1b\\here\x1b]8;;\x07", `\x1b]8;;http://x\x1b\here\x1b]8;;\x07`},
		"a new line":          {"a\nb\r\tc", `a\nb\x0d\tc`},
		"bidirectional marks": {"a\u202eb\u2066c\u200f", `a\u202eb\u2066c\u200f`},
		"zero width":          {"a\u200bb\ufeff", `a\u200bb\ufeff`},
		"tags":                {"\U000e0041", `\U000e0041`},
		"line separator":      {"a\u2028b", `a\u2028b`},
		"no UTF-8":            {"a\xffb\x9b", `a\xffb\x9b`},
		"DEL and NUL":         {"\x7f\x00", `\x7f\x00`},
	} {
		if diff := cmp.Diff(c.want, output.Visible(c.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", about, diff)
		}
	}
}

func TestVisibleLinesKeepsLineBreaks(t *testing.T) {
	if diff := cmp.Diff("a\n\\x1b[2Jb\n", output.VisibleLines("a\n\x1b[2Jb\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		shown := output.Visible(text)
		if strings.ContainsFunc(shown, output.Obeyed) || !utf8.ValidString(shown) || output.Visible(shown) != shown {
			t.Errorf("%q is shown as %q", text, shown)
		}
	})
}

func TestWrapKeepsCommandsWhole(t *testing.T) {
	want := []string{"run", "`echo a b c d`", "and see", "averylongword", "there"}
	if diff := cmp.Diff(want, output.Wrap("run `echo a b c d` and see averylongword there", 8)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestShortenAndPaint(t *testing.T) {
	for got, want := range map[string]string{
		output.Shorten("äöü", 3):                                "äöü",
		output.Shorten("äöüß", 3):                               "äö…",
		output.ShortenWords("needs CAP_SYS_ADMIN", 19):          "needs CAP_SYS_ADMIN",
		output.ShortenWords("it needs CAP_SYS_ADMIN", 17):       "it needs…",
		output.ShortenWords("the read needs CAP_SYS_ADMIN", 24): "the read needs…",
		output.ShortenWords("the read needs it all", 15):        "the read needs…",
		output.ShortenWords("äöüßäöüß", 4):                      "äöü…",
		output.ShortenWords("a CAP_SYS_ADMIN", 10):              "a CAP_SYS…",
		output.Paint(true, output.Red, "no"):                    "\x1b[31mno\x1b[0m",
		output.Paint(false, output.Red, "plain"):                "plain",
		output.Paint(true, "", "without a color"):               "without a color",
		strings.Join(output.Wrap("", 10), "|") + "x":            "x",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCount(t *testing.T) {
	got := []string{
		output.Count(0, "device"), output.Count(1, "device"), output.Count(2, "device"), output.Count(1, "tenancy", "tenancies"), output.Count(3, "tenancy", "tenancies"),
		output.Plural(1, "device"), output.Plural(0, "device"), output.Plural(2, "pass", "passes"),
	}
	if diff := cmp.Diff([]string{"0 devices", "1 device", "2 devices", "1 tenancy", "3 tenancies", "device", "devices", "passes"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
