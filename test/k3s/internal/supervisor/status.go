package supervisor

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	errNotAuthorized = errors.New("not authorized")
	errForbidden     = errors.New("forbidden")
	errMethod        = errors.New("method not allowed")
	errCoreNotReady  = errors.New("runtime core not ready")
	errAPINotReady   = errors.New("apiserver not ready")
)

// sendError answers with a Status object, as K3s shapes it: without apiVersion,
// and indented for clients that people look at.
func sendError(w http.ResponseWriter, r *http.Request, code int, err error) {
	status := statusOf(r, code, err)
	status.Kind = "Status"
	var body []byte
	if pretty(r) {
		body, _ = json.MarshalIndent(status, "", "  ")
	} else {
		body, _ = json.Marshal(status)
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func statusOf(r *http.Request, code int, err error) metav1.Status {
	switch code {
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(err.Error()).ErrStatus
	case http.StatusUnauthorized:
		return apierrors.NewUnauthorized(err.Error()).ErrStatus
	case http.StatusForbidden:
		return failure(code, metav1.StatusReasonForbidden, err)
	case http.StatusBadGateway:
		return failure(code, metav1.StatusReasonInternalError, err)
	case http.StatusServiceUnavailable:
		return apierrors.NewServiceUnavailable(err.Error()).ErrStatus
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(err).ErrStatus
	default:
		return apierrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, r.URL.Path, err.Error(), 0, true).ErrStatus
	}
}

func failure(code int, reason metav1.StatusReason, err error) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: err.Error()}
}

func pretty(r *http.Request) bool {
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
