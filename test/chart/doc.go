// Package chart writes down the values of the Helm chart as a table: what they take is
// in values.schema.json, their defaults and what they are for in values.yaml, and
// the chart's README has both together.
package chart
