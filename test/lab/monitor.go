package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// Monitor runs a command of QEMU's human monitor, such as "device_del gpu0", and returns what it prints.
// Calls from several goroutines wait for each other: the monitor takes one connection.
func (m *Machine) Monitor(ctx context.Context, command string) (string, error) {
	m.monitor.Lock()
	defer m.monitor.Unlock()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(m.dir, monitorFile))
	if err != nil {
		return "", fmt.Errorf("reach QEMU's monitor: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := &qmp{send: json.NewEncoder(conn), receive: json.NewDecoder(bufio.NewReader(conn))}
	out, err := q.human(command)
	if err != nil {
		return "", errors.Join(fmt.Errorf("monitor command %q: %w", command, err), context.Cause(ctx))
	}
	return out, nil
}

// qmp is one conversation in QEMU's machine protocol.
type qmp struct {
	send    *json.Encoder
	receive *json.Decoder
}

type qmpReply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Description string `json:"desc"`
	} `json:"error"`
}

func (q *qmp) human(line string) (string, error) {
	if _, err := q.execute("qmp_capabilities", nil); err != nil {
		return "", err
	}
	raw, err := q.execute("human-monitor-command", map[string]string{"command-line": line})
	if err != nil {
		return "", err
	}
	var text string
	return text, json.Unmarshal(raw, &text)
}

// execute sends a command and reads past the greeting and events to its reply.
func (q *qmp) execute(command string, arguments map[string]string) (json.RawMessage, error) {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := q.send.Encode(request); err != nil {
		return nil, err
	}
	for {
		var reply qmpReply
		if err := q.receive.Decode(&reply); err != nil {
			return nil, err
		}
		if reply.Error != nil {
			return nil, errors.New(reply.Error.Description)
		}
		if reply.Return != nil {
			return reply.Return, nil
		}
	}
}
