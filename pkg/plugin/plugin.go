// Package plugin is what "clusterctl k3s" does: it restarts, pauses and resumes the rollout of a control plane, shows
// a cluster's servers and what is in custody, and verifies its token.
//
// It works with the user's access to the management cluster. Secrets are read, and nothing of their values is printed.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Exit codes, as diff has them: a program can tell an answer from a failure.
const (
	exitDone = iota
	exitNo
	exitFailed
)

// errNo ends the program with exitNo; what there is to say was printed.
var errNo = errors.New("the answer is no")

// command is what all the commands share.
type command struct {
	access access
	output string
	out    io.Writer
	now    func() time.Time
}

// Run runs the plugin and returns its exit code: 0 when it is done, 1 when the answer is no, 2 when it failed.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	log.SetLogger(logr.Discard())
	root := newRoot(out)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNo):
		return exitNo
	default:
		fmt.Fprintln(errOut, "Error:", err)
		return exitFailed
	}
}

func newRoot(out io.Writer) *cobra.Command {
	c := &command{out: out, now: time.Now}
	root := &cobra.Command{
		Use:   "clusterctl-k3s",
		Short: "Look after K3s control planes",
		Long: `Look after K3s control planes, with access to the management cluster.

A control plane is named by its Cluster or by itself:
  my-cluster
  cluster/my-cluster
  kthreescontrolplane/my-cluster-control-plane (or k3cp/...)`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "clusterctl k3s"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkOutput() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.access.kubeconfig, "kubeconfig", "", "The kubeconfig file for the management cluster. Empty: as kubectl finds it.")
	flags.StringVar(&c.access.context, "kubeconfig-context", "", "The context in the kubeconfig file. Empty: the current one.")
	flags.StringVarP(&c.access.namespace, "namespace", "n", "", "The namespace of the Cluster. Empty: that of the context.")
	flags.StringVarP(&c.output, "output", "o", "", "How to print the result: json, or empty for text.")
	root.AddCommand(group("rollout", "Restart, pause or resume the rollout of a control plane",
		c.restart(), c.pause(), c.resume()), c.status(), group("token", "Verify the join token", c.verify()))
	return root
}

// group is a command that only holds others. Cobra would take an unknown one for a request for help, which succeeds.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("there is no command %q in %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// about is a command about one control plane.
func (c *command) about(use, short, long string, run func(context.Context, *subject) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("%s wants one name, of a Cluster or of a control plane (cluster/NAME, kthreescontrolplane/NAME), and got %d",
				cmd.CommandPath(), len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.access.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), s)
		},
	}
}
