// All programs of Kubernetes that a cluster of one node needs, in one executable, and etcd. The
// name by which it is called says which of them it is.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Runs etcd in the folder that the command line names, without waiting for the disk: the cluster
// ends with its data.
func etcd() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: etcd FOLDER")
	}
	config := embed.NewConfig()
	config.Dir = os.Args[1]
	clients := url.URL{Scheme: "http", Host: "127.0.0.1:2379"}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}
	config.ListenClientUrls = []url.URL{clients}
	config.AdvertiseClientUrls = []url.URL{clients}
	config.ListenPeerUrls = []url.URL{peers}
	config.AdvertisePeerUrls = []url.URL{peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	return nil
}

func main() {
	var command *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		if err := etcd(); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = manager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	default:
		fmt.Fprintf(os.Stderr, "%s: unknown program; call it as kubelet, kubectl, ...\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
