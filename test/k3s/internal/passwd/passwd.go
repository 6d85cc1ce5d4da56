// Package passwd reads and writes the file that Basic authentication is checked
// against: lines of `password,user,user,group`.
package passwd

import (
	"bytes"
	"crypto/subtle"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
)

// The users of the file, and the groups they are in.
const (
	UserServer  = "server"
	UserNode    = "node"
	GroupServer = "k3s:server"
	GroupAgent  = "k3s:agent"
)

// File is a password file in memory. It doesn't notice later changes on disk,
// and K3s doesn't either.
type File struct {
	passwords map[string]string
}

// Read reads a password file; one that isn't there is empty.
func Read(path string) (*File, error) {
	file := &File{passwords: map[string]string{}}
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return file, nil
	}
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(bytes.NewReader(raw))
	reader.FieldsPerRecord = -1
	records, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("password file %s: %w", path, err)
	}
	for _, record := range records {
		if len(record) < 3 {
			return nil, fmt.Errorf("password file '%s' must have at least 3 columns (password, user name, user uid), found %d", path, len(record))
		}
		file.passwords[record[1]] = record[0]
	}
	return file, nil
}

// Password returns a user's password; empty if there is no such user.
func (f *File) Password(user string) string { return f.passwords[user] }

// Set changes a user's password, in memory.
func (f *File) Set(user, password string) { f.passwords[user] = password }

// Write saves the file if its content on disk differs.
func (f *File) Write(path string) error {
	var content bytes.Buffer
	writer := csv.NewWriter(&content)
	records := [][]string{
		{f.passwords[UserNode], UserNode, UserNode, GroupAgent},
		{f.passwords[UserServer], UserServer, UserServer, GroupServer},
	}
	if err := writer.WriteAll(records); err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content.Bytes()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content.Bytes(), 0o600)
}

// Authenticate returns the group of a user who knows the password.
func (f *File) Authenticate(user, password string) (group string, ok bool) {
	want := f.passwords[user]
	if want == "" || subtle.ConstantTimeCompare([]byte(want), []byte(password)) != 1 {
		return "", false
	}
	if user == UserServer {
		return GroupServer, true
	}
	return GroupAgent, true
}
