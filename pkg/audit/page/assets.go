package page

import _ "embed" // the page's parts

// The pages' parts: what is around them all, what they share, and the body of
// each. The script and the style sheet are named by their hashes in the page's
// content security policy, so that nothing else runs.
var (
	//go:embed frame.html
	frameTemplate string
	//go:embed parts.html
	partsTemplate string
	//go:embed page.html
	pageTemplate string
	//go:embed answer.html
	answerTemplate string
	//go:embed page.css
	styleSheet string
	//go:embed page.js
	script string
)
