// Argo CD's application controller and repo server, and the Redis that they share, as one program.
//
// Its first argument picks one of them.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	server "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

// redis serves the address that is its argument until it is told to end: the one that Argo CD's own tests use.
func redis() *cobra.Command {
	serve := func(_ *cobra.Command, arguments []string) error {
		cache := miniredis.NewMiniRedis()
		if err := cache.StartAddr(arguments[0]); err != nil {
			return err
		}
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
		<-ended
		cache.Close()
		return nil
	}
	return &cobra.Command{Use: "redis ADDRESS", Args: cobra.ExactArgs(1), RunE: serve}
}

func main() {
	components := map[string]func() *cobra.Command{
		"application-controller": controller.NewCommand,
		"redis":                  redis,
		"repo-server":            server.NewCommand,
	}
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: argocd application-controller|redis|repo-server [ARGUMENT...]")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	if err := components[name]().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
