package writer

import "os"

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
	info := s.look(path)
	return info != nil && info.Size() == size
}

// isIn reports whether the path leads to the open file.
func (s *segment) isIn(path string) bool { return s.look(path) != nil }

// look describes the file at the path, nil if it is not the open one.
func (s *segment) look(path string) os.FileInfo {
	if s.file == nil || s.path != path {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || !os.SameFile(info, s.info) {
		return nil
	}
	return info
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
