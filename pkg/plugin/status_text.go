package plugin

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capk3s/capk3s/pkg/certs"
)

func (s *status) text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Cluster:\t%s/%s\n", s.Namespace, s.Cluster)
	fmt.Fprintf(t, "Control plane:\t%s, %s%s\n", s.ControlPlane, s.Version, s.marks())
	fmt.Fprintf(t, "Servers:\t%s desired, %s now, %s ready, %s available, %s up to date\n", count(s.Replicas.Desired),
		count(s.Replicas.Current), count(s.Replicas.Ready), count(s.Replicas.Available), count(s.Replicas.UpToDate))
	fmt.Fprintf(t, "Etcd:\t%s\n", s.etcdText())

	s.serversText(t)
	s.custodyText(t)
	fmt.Fprint(t, "\nCONDITION\tSTATUS\tREASON\tSINCE\tMESSAGE\n")
	for _, c := range s.Conditions {
		row(t, c.Type, string(c.Status), c.Reason, duration.HumanDuration(s.now.Sub(c.LastTransitionTime.Time)), c.Message)
	}
	return t.Flush()
}

func (s *status) marks() string {
	marks := ""
	if s.Paused {
		marks += ", paused"
	}
	if s.Deleting {
		marks += ", being deleted"
	}
	return marks
}

func (s *status) etcdText() string {
	if s.Etcd.External {
		return "none, the servers use an external datastore"
	}
	text := fmt.Sprintf("healthy: %s, %d members known, %d of them healthy", s.Etcd.Healthy, s.Etcd.Members, s.Etcd.HealthyMembers)
	if s.Etcd.Message != "" {
		text += "; " + oneLine(s.Etcd.Message)
	}
	return text
}

func (s *status) serversText(w io.Writer) {
	fmt.Fprint(w, "\nMACHINE\tNODE\tVERSION\tREADY\tUP-TO-DATE\tETCD-MEMBER\tHEALTHY\tMESSAGE\n")
	for _, m := range s.Servers {
		name := m.Machine
		if m.Deleting {
			name += " (being deleted)"
		}
		row(w, name, m.Node, m.Version, string(m.Ready), string(m.UpToDate), m.Member, string(m.MemberHealthy), m.MemberMessage)
	}
}

func (s *status) custodyText(w io.Writer) {
	fmt.Fprint(w, "\nSECRET\tEXISTS\tCONTROLLER\tEXPIRES\n")
	for _, k := range s.Custody {
		row(w, k.Secret, yesNo(k.Exists), k.controllerText(), k.expiryText(s.now))
	}
}

func (k *kept) controllerText() string {
	switch {
	case !k.Exists, k.Controlled:
		return k.Controller
	case k.Controller == "":
		return "none"
	default:
		return k.Controller + " (not this control plane)"
	}
}

func (k *kept) expiryText(now time.Time) string {
	switch {
	case k.Expires == nil:
		return ""
	case !k.Expires.After(now):
		return k.Expires.Format(time.DateOnly) + " (expired)"
	case k.Expires.Before(now.Add(certs.ExpiryNotice)):
		return k.Expires.Format(time.DateOnly) + " (in " + duration.HumanDuration(k.Expires.Sub(now)) + ")"
	default:
		return k.Expires.Format(time.DateOnly)
	}
}

// row prints cells; what is empty is a dash.
func row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(oneLine(cell), "-")
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// oneLine keeps a message of several lines, or with tabs, in its cell.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func count(n *int32) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(int(*n))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
