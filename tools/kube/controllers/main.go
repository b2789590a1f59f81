// Controllers runs those of Kubernetes' controllers that the tests need, against the cluster of a kubeconfig: Deployments become pods, Services get
// EndpointSlices, namespaces get a ServiceAccount and the authority's certificate, and what belongs to deleted objects is deleted.
//
// The whole kube-controller-manager would take 300 further packages, most of them of storage and clouds.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	workers = 4
	// As in kube-controller-manager.
	resync               = 12 * time.Hour
	replicaSetBurst      = 500
	maxEndpointsPerSlice = 100
	// How often kinds that were installed meanwhile are taken into account; kube-controller-manager's are 30 s.
	garbageKinds = 5 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the cluster, and a user with all rights")
	authority := flag.String("root-ca-file", "", "the certificate that pods get to verify the API server with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, *authority); err != nil {
		klog.ErrorS(err, "The controllers cannot run")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, kubeconfig, authority string) error {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The tests change much in little time, and only they use the API server.
	config.QPS, config.Burst = 1000, 2000
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "controllers"))
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := waitForServer(ctx, client.Discovery()); err != nil {
		return err
	}

	typed := informers.NewSharedInformerFactory(client, resync)
	untyped := metadatainformer.NewSharedInformerFactory(objects, resync)
	apps, core := typed.Apps().V1(), typed.Core().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return err
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaSetBurst)
	// Without a pause in which changes are gathered.
	endpoints := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), typed.Discovery().V1().EndpointSlices(),
		maxEndpointsPerSlice, client, 0)
	namespaces := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), resync, v1.FinalizerKubernetes)
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	certificates, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, certificate)
	if err != nil {
		return err
	}
	kinds := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	started := make(chan struct{})
	garbage, err := garbagecollector.NewGarbageCollector(ctx, client, objects, kinds, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(typed, untyped), started)
	if err != nil {
		return err
	}

	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	close(started)
	go deployments.Run(ctx, workers)
	go replicaSets.Run(ctx, workers)
	go endpoints.Run(ctx, workers)
	go namespaces.Run(ctx, workers)
	go accounts.Run(ctx, workers)
	go certificates.Run(ctx, workers)
	go garbage.Run(ctx, workers, garbageKinds)
	go garbage.Sync(ctx, client.Discovery(), garbageKinds)
	<-ctx.Done()
	return nil
}

// The API server may start at the same time.
func waitForServer(ctx context.Context, server discovery.ServerVersionInterface) error {
	for {
		if _, err := server.ServerVersion(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
