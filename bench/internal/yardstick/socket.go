package yardstick

import (
	"io"
	"net"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

const (
	socketBytes  = 200
	socketPasses = 200 // writes and reads in a round
	socketRounds = 15
	// socketHang is how long after the last round a connection may be silent. A busy machine needs
	// a second for a round.
	socketHang = 10 * time.Second
)

// Socket measures a write and a read of 200 bytes over a loopback TCP connection, for about within.
// It counts the CPU time of the whole process, which should do nothing else meanwhile.
func Socket(within time.Duration) Figure {
	a, b, err := pair()
	if err != nil {
		return Without(err)
	}
	defer a.Close()
	defer b.Close()
	deadline := time.Now().Add(within)
	// A connection that hangs ends the measurement, and not the run.
	for _, conn := range []net.Conn{a, b} {
		if err := conn.SetDeadline(deadline.Add(socketHang)); err != nil {
			return Without(err)
		}
	}
	buffer := make([]byte, socketBytes)
	return Rounds(socketRounds, deadline, func() (float64, error) {
		before := measure.OwnCPU()
		for range socketPasses {
			if _, err := a.Write(buffer); err != nil {
				return 0, err
			}
			if _, err := io.ReadFull(b, buffer); err != nil {
				return 0, err
			}
		}
		took := measure.OwnCPU() - before
		return float64(took.Nanoseconds()) / 1e3 / socketPasses, nil
	})
}

// pair returns both ends of a TCP connection over the loopback interface.
func pair() (a, b net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	if a, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	if b, err = listener.Accept(); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}
