// The one program of the node's helper image: a pod sandbox's first process ("pause"), and
// the command with which the volume provisioner makes and removes a folder.
//
// Static, so that the image needs no base and the cluster starts without building any image.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// pause reaps orphaned children until the container is told to stop.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// volume makes or removes the folder that the provisioner names in VOL_DIR.
func volume(action string) error {
	folder := os.Getenv("VOL_DIR")
	if !filepath.IsAbs(folder) || filepath.Clean(folder) == "/" {
		return fmt.Errorf("VOL_DIR is %q: an absolute folder below / is needed", folder)
	}
	switch action {
	case "create":
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		// fsGroup does nothing on host paths, so any user in a pod must be able to write.
		return os.Chmod(folder, 0o777)
	case "delete":
		return os.RemoveAll(folder)
	}
	return fmt.Errorf("unknown action %q: create or delete is needed", action)
}

func main() {
	if len(os.Args) == 1 || os.Args[1] == "pause" {
		pause()
		return
	}
	action := ""
	for index, argument := range os.Args[:len(os.Args)-1] {
		if argument == "-a" {
			action = os.Args[index+1]
		}
	}
	if err := volume(action); err != nil {
		fmt.Fprintln(os.Stderr, "nodehelper:", err)
		os.Exit(1)
	}
}
