package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/capk3s/capk3s/test/k3s/internal/nodepassword"
)

// deferredNodes are nodes whose Secret couldn't be checked yet.
type deferredNodes struct {
	mu    sync.Mutex
	names map[string]bool
}

func (d *deferredNodes) add(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[string]bool{}
	}
	known := d.names[name]
	d.names[name] = true
	return !known
}

// nodeName checks that a request comes from the node it names, and answers it
// if it doesn't.
func (s *Supervisor) nodeName(w http.ResponseWriter, r *http.Request, who *identity) (string, bool) {
	node := strings.ToLower(r.Header.Get("k3s-Node-Name"))
	password := r.Header.Get("k3s-Node-Password")
	code, err := s.checkNode(r.Context(), node, password, who)
	if err != nil {
		sendError(w, r, code, err)
		return "", false
	}
	return node, true
}

// checkNode returns the HTTP status that a refusal has.
func (s *Supervisor) checkNode(ctx context.Context, node, password string, who *identity) (int, error) {
	if node == "" {
		return http.StatusBadRequest, errors.New("node name not set")
	}
	if password == "" {
		return http.StatusBadRequest, errors.New("node password not set")
	}
	certNode, byCert := strings.CutPrefix(who.name, nodeUserPrefix)
	if byCert && certNode != node {
		return http.StatusBadRequest, errors.New("header node name does not match auth node name")
	}
	kube := s.Kube()
	if kube == nil {
		return s.checkOwnNode(node, password)
	}
	if byCert {
		if _, err := kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil {
			return http.StatusUnauthorized, fmt.Errorf("unable to verify node identity: %w", err)
		}
	}
	err := nodepassword.Ensure(ctx, kube, node, password)
	if errors.Is(err, nodepassword.ErrVerifyFailed) {
		return http.StatusForbidden, err
	}
	if err != nil {
		s.deferCheck(node, password)
	}
	return http.StatusOK, nil
}

// checkOwnNode checks this machine's own node against the password on disk, as
// long as there is no kube-apiserver to ask.
func (s *Supervisor) checkOwnNode(node, password string) (int, error) {
	if node != s.cfg.NodeName {
		return http.StatusServiceUnavailable, errCoreNotReady
	}
	raw, err := os.ReadFile(nodepassword.File())
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("unable to read node password file: %w", err)
	}
	if strings.TrimSpace(string(raw)) != password {
		return http.StatusForbidden, fmt.Errorf("unable to verify local node password: %w", nodepassword.ErrVerifyFailed)
	}
	s.deferCheck(node, password)
	return http.StatusOK, nil
}

// deferCheck compares the Secret when there is a kube-apiserver. The node has
// its certificates by then, so this only leaves an event.
func (s *Supervisor) deferCheck(node, password string) {
	if s.control.DisableAgent || !s.deferred.add(node) {
		return
	}
	logrus.Infof("Password verification deferred for node %s", node)
	go func() {
		for ; ; time.Sleep(5 * time.Second) {
			kube := s.Kube()
			if kube == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := nodepassword.Ensure(ctx, kube, node, password)
			if err != nil {
				nodeEvent(ctx, kube, node, corev1.EventTypeWarning, "NodePasswordValidationFailed",
					fmt.Sprintf("Deferred node password secret validation failed: %v", err))
			} else {
				nodeEvent(ctx, kube, node, corev1.EventTypeNormal, "NodePasswordValidationComplete",
					"Deferred node password secret validation complete")
			}
			cancel()
			if err == nil || errors.Is(err, nodepassword.ErrVerifyFailed) {
				return
			}
		}
	}()
}

func nodeEvent(ctx context.Context, kube kubernetes.Interface, node, kind, reason, message string) {
	now := metav1.Now()
	_, err := kube.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: node + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)},
		Type:           kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "k3s-supervisor"},
	}, metav1.CreateOptions{})
	if err != nil {
		logrus.Debugf("Failed to create event for node %s: %v", node, err)
	}
}
