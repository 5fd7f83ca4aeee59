package vfio

import (
	"context"
	"strconv"
	"strings"
)

// introduce enters who the process is.
func (s *survey) introduce(ctx context.Context, proc string, p *Process) error {
	who, err := describe(s.fs, p.PID)
	if err != nil {
		return err
	}
	p.Comm, p.StartTime, p.Container, p.UID = who.Comm, who.StartTime, who.Container, -1
	if p.Cgroup, err = s.fs.ReadString(proc + "/cgroup"); err != nil {
		return err
	}
	if status, err := s.fs.ReadString(proc + "/status"); err == nil {
		p.Parent, p.UID = parseStatus(status)
	}
	p.Exe, _ = s.fs.ReadLink(proc + "/exe") // a thing to know, no proof: left out where it is not to be had
	if text, err := s.readMemory(ctx, proc+"/cmdline", maxArguments); err == nil && text != "" {
		p.Arguments = strings.Split(strings.TrimRight(text, "\x00\n"), "\x00")
	}
	return nil
}

// parseStatus returns the parent and the effective user by the text of
// proc/<pid>/status; zero and -1 where it does not have them.
func parseStatus(status string) (parent, uid int) {
	uid = -1
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "PPid" && len(fields) == 1:
			parent, _ = strconv.Atoi(fields[0]) // zero, which is nobody, where the kernel wrote no number
		case key == "Uid" && len(fields) == 4:
			if effective, err := strconv.Atoi(fields[1]); err == nil {
				uid = effective
			}
		}
	}
	return parent, uid
}
