package main

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CEL has no semantic versions with K3s' suffix, so a version becomes a number: three digits each for major, minor,
// patch, release candidate (999 for a release) and k3s. The rule on spec.version keeps each within three digits.
const numberOf = `((((int(v.split('.')[0].substring(1)) * 1000 + int(v.split('.')[1])) * 1000` +
	` + int(v.split('.')[2].split('+')[0].split('-')[0])) * 1000` +
	` + (v.contains('-rc') ? int(v.split('-rc')[1].split('+')[0]) : 999)) * 1000` +
	` + int(v.split('+k3s')[1]))`

// wellFormed is true for versions that the number above can be taken of.
const wellFormed = `v.matches('^v[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}(-rc[0-9]{1,3})?[+]k3s[0-9]{1,3}$')`

// unchangedOrMalformed keeps the rules about a change out of the way of objects that only their status or another
// field changes, and of the rule that explains what a version looks like.
const unchangedOrMalformed = `self.spec.version == oldSelf.spec.version || ` +
	`![oldSelf.spec.version, self.spec.version].all(v, WELLFORMED) || `

// orderVersions adds the rules about changes of spec.version. They are on the object as a whole because they look at
// the status, too: going back to what the servers run undoes a mistake and is no downgrade.
func orderVersions(schema *apiextensionsv1.JSONSchemaProps) {
	expand := strings.NewReplacer("NUMBER", numberOf, "WELLFORMED", wellFormed).Replace
	schema.XValidations = append(schema.XValidations,
		apiextensionsv1.ValidationRule{
			Rule: expand(unchangedOrMalformed +
				`[oldSelf.spec.version, self.spec.version].map(v, NUMBER).isSorted() || ` +
				`has(self.status) && has(self.status.versions) && self.status.versions.size() > 0 && ` +
				`self.status.versions.all(s, [s.version, self.spec.version].all(v, WELLFORMED) && ` +
				`[s.version, self.spec.version].map(v, NUMBER).isSorted())`),
			Message: "version can't go down: K3s can't read data that a newer version wrote. Write the version that it " +
				"had, or a newer one",
			FieldPath: ".spec.version",
		},
		apiextensionsv1.ValidationRule{
			Rule: expand(unchangedOrMalformed +
				`[has(self.status) && has(self.status.version) ? self.status.version : oldSelf.spec.version].all(v, ` +
				`int(self.spec.version.split('.')[0].substring(1)) == int(v.split('.')[0].substring(1)) && ` +
				`int(self.spec.version.split('.')[1]) <= int(v.split('.')[1]) + 1)`),
			Message: "version can go up by one minor version at a time: upgrade to the next minor version first, and " +
				"wait until all servers run it",
			FieldPath: ".spec.version",
		})
}
