// Command release writes the files of a release into a folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/capk3s/capk3s/hack/release"
)

func main() {
	var o release.Options
	flag.StringVar(&o.Version, "version", "", "The version, for example v0.1.0.")
	flag.StringVar(&o.Image, "image", "ghcr.io/capk3s/capk3s", "The operator's image, without a tag.")
	platforms := flag.String("plugin-platforms", strings.Join(release.Platforms, ","), "What to compile clusterctl's plugin for.")
	out := flag.String("out", "", "The folder to write to.")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "release: --out is missing")
		os.Exit(2)
	}
	o.Platforms = strings.FieldsFunc(*platforms, func(r rune) bool { return r == ',' })
	if err := run(o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(o release.Options, out string) error {
	files, err := release.Build(o)
	if err != nil {
		return err
	}
	return files.WriteTo(out)
}
