package page

import _ "embed" // the page's parts

// The page's parts. The script and the style sheet are named by their hashes in
// the page's content security policy, so that nothing else runs.
var (
	//go:embed page.html
	pageTemplate string
	//go:embed page.css
	styleSheet string
	//go:embed page.js
	script string
)
