package writer

import (
	"os"
)

// segment is the newest segment's open file, which stays open between two writes. Its zero value is closed.
type segment struct {
	path string
	file *os.File
	info os.FileInfo
}

// open returns the file at the path, to append to.
func (s *segment) open(path string) (*os.File, error) {
	if s.file != nil && s.path == path {
		return s.file, nil
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close() // nothing was written to it
		return nil, err
	}
	s.path, s.file, s.info = path, file, info
	return file, nil
}

// isAt reports whether the path leads to the open file, and the file has that many bytes.
func (s *segment) isAt(path string, size int64) bool {
	if s.file == nil || s.path != path {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Size() == size && os.SameFile(info, s.info)
}

// close closes the file, if it is open. What was written without an fsync is not lost by that.
func (s *segment) close() error {
	file := s.file
	*s = segment{}
	if file == nil {
		return nil
	}
	return file.Close()
}
