// The yardstick of `make bench ARGS=scale`: the least that an operator for controller-runtime is, which makes the same
// children of the same objects. Children come as templates, so their bytes are those of Whetstone.
//
// Usage: controller-runtime-operator <templates.json> <namespace> <address of metrics> <workers>
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Names of the object that the templates were made for; each child's text has them replaced.
const (
	templateName      = "template-name"
	templateNamespace = "template-namespace"
	templateUID       = "template-uid"
)

// Templates holds, by kind, the children of each stage; a stage begins when the Jobs of the one before are complete.
type Templates map[string][][]json.RawMessage

type reconciler struct {
	client.Client
	kind     schema.GroupVersionKind
	stages   [][]json.RawMessage
	decoder  runtime.Decoder
	recorder events.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.kind)
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	for _, stage := range r.stages {
		done := true
		for _, template := range stage {
			ready, err := r.ensure(ctx, object, template)
			if err != nil {
				return ctrl.Result{}, err
			}
			done = done && ready
		}
		if !done {
			return ctrl.Result{}, r.tell(ctx, object, "False", "Progressing")
		}
	}
	return ctrl.Result{}, r.tell(ctx, object, "True", "Succeeded")
}

// ensure creates a child unless it exists, and says whether it is ready, or complete.
func (r *reconciler) ensure(ctx context.Context, owner client.Object, template json.RawMessage) (bool, error) {
	text := strings.NewReplacer(
		templateNamespace, owner.GetNamespace(), templateName, owner.GetName(), templateUID, string(owner.GetUID()),
	).Replace(string(template))
	decoded, _, err := r.decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		return false, err
	}
	child := decoded.(client.Object)
	stored := decoded.DeepCopyObject().(client.Object)
	key := types.NamespacedName{Namespace: child.GetNamespace(), Name: child.GetName()}
	if err := r.Get(ctx, key, stored); apierrors.IsNotFound(err) {
		if err := r.Create(ctx, child); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, err
		}
		stored = child
	} else if err != nil {
		return false, err
	}
	switch one := stored.(type) {
	case *appsv1.Deployment:
		return one.Status.ReadyReplicas > 0, nil
	case *batchv1.Job:
		for _, condition := range one.Status.Conditions {
			if condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	}
	return true, nil
}

// tell writes the status where it changes, and records an Event for it.
func (r *reconciler) tell(ctx context.Context, object *unstructured.Unstructured, status, reason string) error {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	if len(conditions) == 1 && conditions[0].(map[string]any)["reason"] == reason {
		return nil
	}
	before := object.DeepCopy()
	condition := map[string]any{
		"type": "Ready", "status": status, "reason": reason, "message": "",
		"lastTransitionTime": object.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z"),
	}
	if err := unstructured.SetNestedSlice(object.Object, []any{condition}, "status", "conditions"); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(object.Object, object.GetGeneration(), "status", "observedGeneration"); err != nil {
		return err
	}
	if err := r.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.recorder.Eventf(object, nil, corev1.EventTypeNormal, reason, reason, "%s is %s", object.GetName(), reason)
	return nil
}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(os.Args[1:]); err != nil {
		ctrl.Log.Error(err, "the operator ended")
		os.Exit(1)
	}
}

func run(arguments []string) error {
	text, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	var templates Templates
	if err := json.Unmarshal(text, &templates); err != nil {
		return err
	}
	workers, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	configuration := ctrl.GetConfigOrDie()
	configuration.QPS = -1 // as Whetstone, it leaves limits to the API server
	manager, err := ctrl.NewManager(configuration, ctrl.Options{
		Scheme:  clientgoscheme.Scheme,
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{arguments[1]: {}}},
		Metrics: metricsserver.Options{BindAddress: arguments[2]},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return err
	}
	for kind, stages := range templates {
		described := schema.GroupVersionKind{Group: "whetstone.dev", Version: "v1alpha1", Kind: kind}
		if err := control(manager, described, stages, workers); err != nil {
			return err
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func control(manager ctrl.Manager, kind schema.GroupVersionKind, stages [][]json.RawMessage, workers int) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	builder := ctrl.NewControllerManagedBy(manager).For(object).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	decoder := serializer.NewCodecFactory(manager.GetScheme()).UniversalDeserializer()
	owned := map[string]bool{}
	for _, stage := range stages {
		for _, template := range stage {
			child, described, err := decoder.Decode(template, nil, nil)
			if err != nil {
				return err
			}
			if !owned[described.Kind] {
				owned[described.Kind] = true
				builder = builder.Owns(child.(client.Object))
			}
		}
	}
	return builder.Complete(&reconciler{
		Client: manager.GetClient(), kind: kind, stages: stages, decoder: decoder,
		recorder: manager.GetEventRecorder("controller-runtime-operator"),
	})
}
