// Package fleet tells from what the API server lists who has which device, how claims
// fare and why. It decides only: who calls it has listed the objects, and prints what
// comes of them. All texts are as they were listed, and so may be anybody's.
package fleet
