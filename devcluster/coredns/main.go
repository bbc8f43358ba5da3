// CoreDNS with the plugins that the Corefile of the one-node cluster names, and no other: the usual build brings
// the clients of several clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// the order in which a query passes them
	dnsserver.Directives = []string{"ready", "errors", "template", "kubernetes"}
}

func main() { coremain.Run() }
