package sysfs

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Proc is the directory of processes.
const Proc = "proc"

// Process returns the directory of a process, "proc/4711", or a file in it: its name may have several elements.
func Process(pid int, name ...string) string {
	return path.Join(append([]string{Proc, strconv.Itoa(pid)}, name...)...)
}

// ParseArguments returns the command and the arguments of a process, from the text of proc/<pid>/cmdline. Each word
// ends with a null byte (proc_pid_cmdline(5)). A kernel thread or a zombie has no words.
func ParseArguments(cmdline string) []string {
	text := strings.TrimRight(cmdline, "\x00\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// StatusField returns a field of proc/<pid>/status (proc_pid_status(5)), and whether the text has it.
func StatusField(status, name string) (value string, ok bool) {
	for line := range strings.Lines(status) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// firstField is the number of the first field that [statFields] returns: those before are the PID and the name.
const firstField = 3

// statFields returns the fields of proc/<pid>/stat from the third on (proc_pid_stat(5)). It returns an error if the
// field with the number last is missing. The second field is the name of the process, and may contain any characters,
// even closing parentheses.
func statFields(stat string, last int) ([]string, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) <= last-firstField {
		return nil, fmt.Errorf("stat %q: want at least %d fields", stat, last)
	}
	return f, nil
}

// ParseStartTime returns when a process started, in clock ticks after boot, from the text of proc/<pid>/stat: its 22nd
// field. Together with the PID it distinguishes a process from a later one with the same PID.
func ParseStartTime(stat string) (uint64, error) {
	const startTime = 22
	f, err := statFields(stat, startTime)
	if err != nil {
		return 0, err
	}
	start, err := strconv.ParseUint(f[startTime-firstField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stat %q: start time: %w", stat, err)
	}
	return start, nil
}

// ParseParents returns a process' parent and its process group by the text of
// proc/<pid>/stat: fields 4 and 5.
func ParseParents(stat string) (parent, group int, err error) {
	const parentField, groupField = 4, 5
	f, err := statFields(stat, groupField)
	if err != nil {
		return 0, 0, err
	}
	if parent, err = strconv.Atoi(f[parentField-firstField]); err != nil {
		return 0, 0, fmt.Errorf("stat %q: parent: %w", stat, err)
	}
	if group, err = strconv.Atoi(f[groupField-firstField]); err != nil {
		return 0, 0, fmt.Errorf("stat %q: process group: %w", stat, err)
	}
	return parent, group, nil
}

// processFlags returns a process' flags (PF_ in include/linux/sched.h) by the text of proc/<pid>/stat: field 9.
func processFlags(stat string) (uint64, error) {
	const flagsField = 9
	f, err := statFields(stat, flagsField)
	if err != nil {
		return 0, err
	}
	flags, err := strconv.ParseUint(f[flagsField-firstField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stat %q: flags: %w", stat, err)
	}
	return flags, nil
}

// IsKernelThread reports whether a process is a thread of the kernel, from the text of proc/<pid>/stat. Such a thread
// has no memory of its own. No process of a user can become one.
func IsKernelThread(stat string) (bool, error) {
	const kernelThread = 0x0020_0000 // PF_KTHREAD in include/linux/sched.h
	flags, err := processFlags(stat)
	return flags&kernelThread != 0, err
}

// IsEnding reports whether a process is ending but threads of it are left, from the text of proc/<pid>/stat. Fields 3,
// 9 and 20 (proc_pid_stat(5)) are its state, its flags and the number of its threads. A zombie with one thread has
// closed all its files, so it does not count as ending.
func IsEnding(stat string) (bool, error) {
	const threadsField = 20
	const exiting = 4 // PF_EXITING in include/linux/sched.h
	flags, err := processFlags(stat)
	if err != nil {
		return false, err
	}
	f, err := statFields(stat, threadsField)
	if err != nil {
		return false, err
	}
	threads, err := strconv.Atoi(f[threadsField-firstField])
	if err != nil {
		return false, fmt.Errorf("stat %q: number of threads: %w", stat, err)
	}
	return flags&exiting != 0 && (f[0] != "Z" || threads > 1), nil
}
