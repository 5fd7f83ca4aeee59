package chromium

import (
	"bytes"
	"compress/zlib"
	"io"
	"regexp"
	"strconv"
)

// Sheet is one page of a PDF.
type Sheet struct {
	// Texts is how many runs of text it has.
	Texts int
}

// Sheets returns the pages of a PDF that [Page.PDF] made, in order.
func Sheets(pdf []byte) []Sheet {
	var sheets []Sheet
	page := regexp.MustCompile(`/Type /Page\n(?s:.*?)endobj`)
	contents := regexp.MustCompile(`/Contents (\d+) 0 R`)
	for _, object := range page.FindAll(pdf, -1) {
		var s Sheet
		if ref := contents.FindSubmatch(object); ref != nil {
			n, _ := strconv.Atoi(string(ref[1]))
			s = sheetOf(stream(pdf, n))
		}
		sheets = append(sheets, s)
	}
	return sheets
}

// stream returns the decompressed stream of an object; nil if it has none.
func stream(pdf []byte, object int) []byte {
	_, rest, ok := bytes.Cut(pdf, []byte("\n"+strconv.Itoa(object)+" 0 obj"))
	if !ok {
		return nil
	}
	_, rest, ok = bytes.Cut(rest, []byte("stream\n"))
	if !ok {
		return nil
	}
	r, err := zlib.NewReader(bytes.NewReader(rest))
	if err != nil {
		return nil
	}
	defer func() { _ = r.Close() }()
	text, _ := io.ReadAll(r) // what follows the stream is not its
	return text
}

func sheetOf(content []byte) Sheet {
	return Sheet{Texts: len(regexp.MustCompile(`T[jJ]\s`).FindAll(content, -1))}
}
