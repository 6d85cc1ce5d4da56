package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
)

// serverCertificates is how long the certificates last that K3s makes when it starts for the first time.
const serverCertificates = 365 * 24 * time.Hour

// report writes what a reconcile came to into the status, in one patch, if anything changed.
func (r *Reconciler) report(ctx context.Context, s *scope, original *bootstrapv1.KThreesConfig, err error) (ctrl.Result, error) {
	result := ctrl.Result{}
	var refused *refusal
	switch {
	case err == nil:
		setAvailable(s)
	case errors.As(err, &refused):
		result.RequeueAfter = refused.again
		r.setRefused(s.config, refused)
		err = nil
	case errors.Is(err, errStale):
		// The change comes through a watch.
		return ctrl.Result{}, nil
	case !conditions.IsTrue(s.config, bootstrapv1.DataSecretAvailableCondition):
		setCondition(s.config, bootstrapv1.DataSecretAvailableCondition, metav1.ConditionFalse, bootstrapv1.InternalErrorReason,
			"An error occurred, which is in the controller's log; it is tried again")
	}
	if summaryErr := setReady(s.config); summaryErr != nil {
		return ctrl.Result{}, errors.Join(err, summaryErr)
	}
	if err == nil {
		s.config.Status.ObservedGeneration = s.config.Generation
	}
	if patchErr := r.patchStatus(ctx, s.config, original); patchErr != nil {
		return ctrl.Result{}, errors.Join(err, patchErr)
	}
	return result, err
}

// setAvailable also says that the token and the certificate authorities were there: without them there would be no
// bootstrap data.
func setAvailable(s *scope) {
	setFound(s.config, bootstrapv1.CertificatesAvailableCondition)
	setFound(s.config, bootstrapv1.TokenAvailableCondition)
	message := ""
	if s.secret != nil {
		message = sizeWarning(len(s.secret.Data[valueKey]))
	}
	setCondition(s.config, bootstrapv1.DataSecretAvailableCondition, metav1.ConditionTrue, bootstrapv1.AvailableReason, message)
}

// setRefused writes an event when the reason is a new one, or the same of something else: the next field that is wrong,
// or the next Secret that is missing.
func (r *Reconciler) setRefused(config *bootstrapv1.KThreesConfig, refused *refusal) {
	if conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition) != refused.reason ||
		conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition) != refused.message {
		kind := corev1.EventTypeNormal
		if refused.warning {
			kind = corev1.EventTypeWarning
		}
		r.event(config, kind, refused.reason, "%s", refused.message)
	}
	setCondition(config, bootstrapv1.DataSecretAvailableCondition, metav1.ConditionFalse, refused.reason, refused.message)
	if refused.condition != "" {
		setCondition(config, refused.condition, metav1.ConditionFalse, refused.reason, refused.message)
	}
}

// setFound says that what the condition speaks of is there.
func setFound(config *bootstrapv1.KThreesConfig, kind string) {
	setCondition(config, kind, metav1.ConditionTrue, bootstrapv1.AvailableReason, "")
}

func setCondition(config *bootstrapv1.KThreesConfig, kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(config, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// setReady makes Ready say what DataSecretAvailable says, in the words of Cluster API's summaries: whatever else is
// missing keeps the data from being made.
func setReady(config *bootstrapv1.KThreesConfig) error {
	err := conditions.SetSummaryCondition(config, config, bootstrapv1.ReadyCondition,
		conditions.ForConditionTypes{bootstrapv1.DataSecretAvailableCondition})
	if err != nil {
		return fmt.Errorf("summarizing the conditions: %w", err)
	}
	return nil
}

func setDataSecret(config *bootstrapv1.KThreesConfig, name string) {
	config.Status.DataSecretName = name
	config.Status.Initialization.DataSecretCreated = ptr.To(true)
}

func (r *Reconciler) patchStatus(ctx context.Context, config, original *bootstrapv1.KThreesConfig) error {
	if equality.Semantic.DeepEqual(config.Status, original.Status) {
		return nil
	}
	// Only the status is sent: metadata that was patched meanwhile is the same in both.
	base := config.DeepCopy()
	base.Status = original.Status
	if err := r.Client.Status().Patch(ctx, config, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("patching the status of KThreesConfig %s: %w", config.Name, client.IgnoreNotFound(err))
	}
	return nil
}

// annotateExpiry tells Cluster API when the certificates of a server expire, before the data can be used.
func (r *Reconciler) annotateExpiry(ctx context.Context, s *scope, role bootdata.Role) error {
	if role == bootdata.Worker {
		return nil
	}
	base := s.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.config.ObjectMeta, clusterv1.MachineCertificatesExpiryDateAnnotation,
		time.Now().Add(serverCertificates).UTC().Format(time.RFC3339))
	status := s.config.Status.DeepCopy()
	if err := r.Client.Patch(ctx, s.config, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("annotating KThreesConfig %s: %w", s.config.Name, err)
	}
	s.config.Status = *status
	return nil
}

func (r *Reconciler) event(config *bootstrapv1.KThreesConfig, kind, reason, format string, args ...any) {
	const action = "Bootstrap"
	r.Recorder.Eventf(config, nil, kind, reason, action, format, args...)
}
