package containers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pattern = "/etc/containerd/conf.d/*.toml"

func TestImportIsTheLeastEdit(t *testing.T) {
	const added = `"/etc/containerd/conf.d/*.toml"`
	for name, c := range map[string]struct{ text, want string }{
		"after the version": {
			"# ours\nversion = 2 # keep\n\n[grpc]\n  address = 'x'\n",
			"# ours\nversion = 2 # keep\nimports = [" + added + "]\n\n[grpc]\n  address = 'x'\n",
		},
		"with CRLF":                 {"version = 3\r\n[a]\r\n", "version = 3\r\nimports = [" + added + "]\r\n[a]\r\n"},
		"no newline at the end":     {"version = 3", "version = 3\nimports = [" + added + "]"},
		"no newline after CRLF":     {"root = 'x'\r\nversion = 3", "root = 'x'\r\nversion = 3\r\nimports = [" + added + "]"},
		"no version":                {"# c\n\n[a]\nb = 1\n", "# c\n\nimports = [" + added + "]\n[a]\nb = 1\n"},
		"no version, keys":          {"# c\n  root = \"\"\"\n[x]\n\"\"\"\n", "# c\nimports = [" + added + "]\n  root = \"\"\"\n[x]\n\"\"\"\n"},
		"an empty file":             {"", "imports = [" + added + "]\n"},
		"comments only":             {"# c\n", "# c\nimports = [" + added + "]\n"},
		"comments without newline":  {"# c", "# c\nimports = [" + added + "]"},
		"an empty list":             {"version = 2\nimports = [ ] # none\n", "version = 2\nimports = [" + added + " ] # none\n"},
		"an empty list of lines":    {"imports = [\n # none, [ \n]\n", "imports = [" + added + "\n # none, [ \n]\n"},
		"a list in a line":          {"imports = ['/a', \"/b]\"] # c, ]\nversion = 2\n", "imports = ['/a', \"/b]\", " + added + "] # c, ]\nversion = 2\n"},
		"a list of lines":           {"imports = [\n  \"/a\", # one\n  \"/b\" # two\n]\n", "imports = [\n  \"/a\", # one\n  \"/b\", " + added + " # two\n]\n"},
		"a comma at the end":        {"imports = [\n  \"/a\",\n  # \"/b\",\n]\n", "imports = [\n  \"/a\", " + added + ",\n  # \"/b\",\n]\n"},
		"a key in quotes":           {"\"imports\"=['a']\n", "\"imports\"=['a', " + added + "]\n"},
		"a quoted key with bracket": {"version = 2\n'im[p' = 1\n", "version = 2\nimports = [" + added + "]\n'im[p' = 1\n"},
		"an escaped key":            {"\"i\\u006dports\" = []\n", "\"i\\u006dports\" = [" + added + "]\n"},
		"a table of that name":      {"version = 2\n[plugins.x]\nimports = ['y']\n", "version = 2\nimports = [" + added + "]\n[plugins.x]\nimports = ['y']\n"},
		"strings of lines":          {"imports = ['''\n/a''', \"\"\"\\\n  /b\"\"\"]", "imports = ['''\n/a''', \"\"\"\\\n  /b\"\"\", " + added + "]"},
	} {
		got, err := addImport("/c.toml", c.text, pattern)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: the text differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestImportIsRefusedWhereItCouldBreakTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"version = 2\nimports = 'a'\n":                  "imports is not a list",
		"imports = ['a', 1]\n":                          "not a string",
		"imports.a = 1\n":                               "already defined",
		"version = 2\n[imports]\n":                      "",
		"imports = []\nimports = []\n":                  "/c.toml:2: ",
		"version = 2\nimports = ['a'\n":                 "/c.toml:",
		"version = 2\n[plugins\n":                       "/c.toml:2: ",
		"x = nan\n":                                     "other settings",
		"a = " + strings.Repeat("[", 1<<19):             "brackets",
		strings.Repeat("# 345678\n", 1<<17):             "longer than",
		"\xef\xbb\xbfversion = 2\n":                     "",
		"version = 2\nimports = ['/a']\x00\n":           "/c.toml:",
		"version = 2\r[a]\r":                            "/c.toml:",
		"[[imports]]\na = 1\n[[imports]]\n":             "",
		"imports = [['/etc/containerd/conf.d/*.toml']]": "not a string",
	} {
		got, err := addImport("/c.toml", text, pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q becomes %q, error %v; want one with %q", text, got, err, want)
		}
	}
}

// Whatever TOML goes in, the outcome says the same except for the import, or there is
// none; and no byte of the text is lost.
func FuzzImports(f *testing.F) {
	for _, seed := range []string{
		"version = 2\n", "imports = []\n", "imports = [\n 'a', # b\n]\n[x]\n", "# c\r\nversion = 3\r\n[a.'b.c']\r\nd = { e = [1, 2] }\r\n",
		"a = '''\nimports = []\n'''", "\"imports\" = [\"\\\"]\"]", "[a]\nimports = []\n", "x = 1979-05-27T07:32:00Z\n[[a]]\n[[a]]\nb = inf",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := addImport("/c.toml", text, pattern)
		if err != nil {
			return
		}
		if err := differByImport(text, got, pattern); err != nil {
			t.Errorf("%q became %q: %v", text, got, err)
		}
		i := 0
		for i < len(text) && text[i] == got[i] {
			i++
		}
		if tail := text[i:]; !strings.HasSuffix(got, tail) {
			t.Errorf("%q became %q: text was lost", text, got)
		}
		again, err := addImport("/c.toml", got, pattern+"2")
		if err != nil {
			t.Fatalf("a second import into %q: %v", got, err)
		}
		if err := differByImport(got, again, pattern+"2"); err != nil {
			t.Errorf("a second import into %q gives %q: %v", got, again, err)
		}
	})
}
