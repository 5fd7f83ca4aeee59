package main

import (
	"fmt"
	"slices"
	"strings"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// noAssertion is what SPDX wants where nothing is said.
const noAssertion = "NOASSERTION"

// certain is how much of a license must be there, word by word, to be called that.
const certain = 0.9

// lawyer knows licenses by their texts.
type lawyer struct{ known *classifier.Classifier }

func newLawyer() (*lawyer, error) {
	known, err := assets.DefaultClassifier()
	if err != nil {
		return nil, fmt.Errorf("load the known licenses: %w", err)
	}
	return &lawyer{known: known}, nil
}

// expression is what a module's files declare, as an SPDX expression. All licenses that are in them count.
func (l *lawyer) expression(texts []file) string {
	var names []string
	for _, text := range texts {
		for _, m := range l.known.Match(text.content).Matches {
			if m.MatchType == "License" && m.Confidence >= certain && !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	if len(names) == 0 {
		return noAssertion
	}
	slices.Sort(names)
	return strings.Join(names, " AND ")
}
