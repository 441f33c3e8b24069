// Helm lints and renders a chart as `helm lint` and `helm template` do, with Helm's own packages.
// It decodes the result with the types of Kubernetes:
//
//	helm CHART [VALUES.yaml…]
//
// It prints the manifests. Every message of the linter above an information is an error. So is a
// field that Kubernetes does not know, or one of another type. A ServiceMonitor, which Kubernetes
// itself does not have, is printed as it is. The whole of Helm would take much longer to compile.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	release, namespace = "tidemark", "chat"
	// foreign is the group of the kinds that the chart may have and Kubernetes does not: those of
	// the Prometheus operator.
	foreign = "monitoring.coreos.com"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: helm CHART [VALUES.yaml…]")
		os.Exit(2)
	}
	manifests, err := check(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
	fmt.Print(manifests)
}

// check returns the manifests of the chart with the files of values. A later file overrides an
// earlier one.
func check(dir string, files []string) (manifests string, err error) {
	values := chartutil.Values{}
	for _, file := range files {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	var problems []error
	for _, message := range lint.All(dir, values, namespace, true).Messages {
		if message.Severity > support.InfoSev {
			problems = append(problems, fmt.Errorf("lint: %w", message))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	rendered, err := render(dir, values)
	if err != nil {
		return "", err
	}
	var whole strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		if err := decode(rendered[name]); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
		if text := strings.TrimSpace(rendered[name]); text != "" {
			fmt.Fprintf(&whole, "---\n# Source: %s\n%s\n", name, strings.TrimPrefix(text, "---\n"))
		}
	}
	return whole.String(), errors.Join(problems...)
}

// render does what `helm template` does.
func render(dir string, values chartutil.Values) (map[string]string, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{
		Name:      release,
		Namespace: namespace,
		Revision:  1,
		IsInstall: true,
	}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

// decode reads the documents of one file strictly.
func decode(text string) error {
	decoder := serializer.NewCodecFactory(scheme.Scheme,
		serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var problems []error
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(problems...)
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		known := !bytes.Contains(document, []byte("\napiVersion: "+foreign+"/")) &&
			!bytes.HasPrefix(document, []byte("apiVersion: "+foreign+"/"))
		_, _, err = decoder.Decode(document, nil, nil)
		if err != nil && (known || !runtime.IsNotRegisteredError(err)) {
			problems = append(problems, err)
		}
	}
}
