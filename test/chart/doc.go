// Package chart makes a table of the values of the Helm chart. What the values accept is in values.schema.json, their defaults
// and their purpose are in values.yaml, and the chart's README has both together.
package chart
