// Package bootstrap handles what all servers of a cluster share: the CAs, the
// password file, and a few keys. It travels over HTTP when a server joins, and
// rests in etcd, encrypted with the token.
package bootstrap

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// clockSkew is how much newer than the datastore a file may be.
const clockSkew = 3 * time.Second

// File is one shared file.
type File struct {
	// Timestamp is the file's modification time.
	Timestamp time.Time
	// Content are its bytes; base64 in JSON.
	Content []byte
}

// Data are the shared files by K3s' field names.
type Data map[string]File

// paths maps K3s' field names to files. Files of disabled features are absent.
func paths(f pki.Files) map[string]string {
	return map[string]string{
		"ServerCA": f.ServerCA, "ServerCAKey": f.ServerCAKey,
		"ClientCA": f.ClientCA, "ClientCAKey": f.ClientCAKey,
		"RequestHeaderCA": f.RequestHeaderCA, "RequestHeaderCAKey": f.RequestHeaderCAKey,
		"ETCDServerCA": f.ETCDServerCA, "ETCDServerCAKey": f.ETCDServerCAKey,
		"ETCDPeerCA": f.ETCDPeerCA, "ETCDPeerCAKey": f.ETCDPeerCAKey,
		"ServiceKey": f.ServiceKey, "PasswdFile": f.PasswdFile, "IPSECKey": f.IPSECKey,
		"EncryptionConfig": f.EncryptionConfig,
	}
}

// FromDisk reads the shared files that exist.
func FromDisk(f pki.Files) (Data, error) {
	data := Data{}
	for name, path := range paths(f) {
		info, err := os.Stat(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		data[name] = File{Timestamp: info.ModTime().UTC(), Content: content}
	}
	return data, nil
}

// Parse reads the JSON form.
func Parse(raw []byte) (Data, error) {
	var data Data
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, fmt.Errorf("parse bootstrap data: %w", err)
	}
	return data, nil
}

// ToDisk writes all shared files, with the times they were made at.
func (d Data) ToDisk(f pki.Files) error {
	targets := paths(f)
	for name, file := range d {
		path, known := targets[name]
		if !known || len(file.Content) == 0 {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.Content, 0o600); err != nil {
			return err
		}
		if err := os.Chtimes(path, file.Timestamp, file.Timestamp); err != nil {
			return err
		}
	}
	return nil
}

// NewerError names files that somebody changed on disk after the cluster stored
// them; K3s refuses to start then.
type NewerError struct {
	// Files are paths.
	Files []string
}

// Error is K3s' text.
func (e *NewerError) Error() string {
	return strings.Join(e.Files, ", ") + " newer than datastore and could cause a cluster outage." +
		" Remove the file(s) from disk and restart to be recreated from datastore."
}

// Reconcile makes the files on disk what the data says: files that are missing
// or older are overwritten, newer ones are a *NewerError.
func (d Data) Reconcile(f pki.Files) error {
	for _, dir := range []string{f.CredDir, f.TLSDir, f.EtcdTLSDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if len(entries) == 0 {
			logrus.Warnf("%s directory is empty", dir)
			return d.ToDisk(f)
		}
	}

	var newer []string
	older := false
	targets := paths(f)
	for name, file := range d {
		path, known := targets[name]
		if !known {
			continue
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			logrus.Warnf("%s doesn't exist. continuing...", path)
			older = true
			continue
		}
		if err != nil {
			return err
		}
		if string(content) == string(file.Content) {
			continue
		}
		logrus.Warnf("%s is out of sync with datastore", path)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.ModTime().Sub(file.Timestamp) >= clockSkew {
			newer = append(newer, path)
		} else {
			older = true
		}
	}
	if len(newer) > 0 {
		sort.Strings(newer)
		return &NewerError{Files: newer}
	}
	if older {
		return d.ToDisk(f)
	}
	return nil
}
