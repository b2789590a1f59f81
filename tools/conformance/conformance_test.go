// Package conformance is the conformance suite of the Gateway API Inference Extension as a program, which tools/conformance/setup builds.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api-inference-extension/conformance"
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
