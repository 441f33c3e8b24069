package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"slices"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// listParts writes which modules the programs are made of (SBOM), as CycloneDX. It reads them from
// the programs themselves, all systems together.
func (r *release) listParts(context.Context) error {
	parts := map[string]cyclonedx.Component{}
	for _, t := range r.targets {
		info, err := buildinfo.ReadFile(r.programs[t])
		if err != nil {
			return err
		}
		// The standard library is a part, too.
		goVersion := "v" + info.GoVersion[len("go"):]
		parts["std"] = component("std", goVersion, "")
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			parts[d.Path] = component(d.Path, d.Version, d.Sum)
		}
	}
	list := cyclonedx.NewBOM()
	main := component("github.com/tidemark-im/tidemark", "v"+r.version, "")
	main.Type = cyclonedx.ComponentTypeApplication
	list.Metadata = &cyclonedx.Metadata{
		Timestamp: r.at.Format(time.RFC3339), Component: &main,
	}
	// The same release has the same serial number, which has the form of a UUID.
	id := sha256.Sum256([]byte(r.commit + r.version))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	list.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10],
		id[10:16])
	all := make([]cyclonedx.Component, 0, len(parts))
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		all, names = append(all, part), append(names, part.BOMRef)
	}
	slices.SortFunc(all, func(a, b cyclonedx.Component) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(names)
	list.Components = &all
	list.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &names}}
	var b bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).
		Encode(list); err != nil {
		return err
	}
	return r.publish("tidemark-"+r.version+"-sbom.json", b.Bytes())
}

func component(module, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + module + "@" + version
	c := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: url,
		BOMRef: url,
	}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}
