package custody

import (
	"fmt"
	"time"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// Error is a state that a human must see or that passes by itself; trying again at once doesn't help. It becomes a
// condition of the control plane. Neither field ever holds a part of a Secret's data.
type Error struct {
	// Reason is the condition's reason, one of the constants of the control plane's API.
	Reason string

	// Message says what is wrong and what to do about it.
	Message string

	// RetryAfter is when to look again; zero when a watch will tell.
	RetryAfter time.Duration
}

// Error returns the reason and the message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Errorf returns an Error with a formatted message.
func Errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ContestedError says that another controller took a Secret back after this one had put its reference in.
type ContestedError struct {
	// Secret is the Secret's name.
	Secret string

	// By is the kind and name of the other controller.
	By string

	// RetryAfter is the time until the reference is put in again.
	RetryAfter time.Duration
}

// Error says who contests what and how to end it.
func (e *ContestedError) Error() string {
	return fmt.Sprintf("Secret %s: %s keeps making itself the controller; stop it from owning this Secret. Its content is used meanwhile",
		e.Secret, e.By)
}

// WithReason returns the error as one with a condition's reason.
func (e *ContestedError) WithReason(reason string) *Error {
	return &Error{Reason: reason, Message: e.Error(), RetryAfter: e.RetryAfter}
}

func foreignSecret(name, format string, args ...any) *Error {
	return Errorf(controlplanev1.ForeignSecretReason, "Secret %s %s", name, fmt.Sprintf(format, args...))
}
