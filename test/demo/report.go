package main

import (
	"fmt"
	"io"
	"time"
)

// report tells a person what goes on, each line with the time since the start.
type report struct {
	out   io.Writer
	begin time.Time
	// last is when something was told last.
	last time.Time
}

func newReport(out io.Writer) *report { return &report{out: out, begin: time.Now(), last: time.Now()} }

// step begins a part of the demo.
func (r *report) step(format string, args ...any) { r.line("==> "+format, args...) }

// detail tells what happens in a step.
func (r *report) detail(format string, args ...any) { r.line("    "+format, args...) }

func (r *report) line(format string, args ...any) {
	r.last = time.Now()
	fmt.Fprintf(r.out, "[%4.0fs] "+format+"\n", append([]any{time.Since(r.begin).Seconds()}, args...)...)
}

// text prints something as it is, with a title.
func (r *report) text(title, text string) { fmt.Fprintf(r.out, "\n%s\n%s", title, text) }

// silent is how long nothing was told.
func (r *report) silent() time.Duration { return time.Since(r.last) }
