package image

import shared "github.com/kata-vfio/kata-vfio/test/internal/progress"

// progress is a build's progress under the name that it has in the files that an image's key covers: to change them is
// to have every host build its image again.
type progress struct{ *shared.Progress }

func (p *progress) step(format string, args ...any) { p.Step(format, args...) }
