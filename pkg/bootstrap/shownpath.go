package bootstrap

import "encoding/json"

// JSON shows the paths of files as the output for people does, with a leading slash. Names below the node's root have none.

// MarshalJSON implements [json.Marshaler].
func (f FilePlan) MarshalJSON() ([]byte, error) {
	type plain FilePlan
	f.Path = "/" + f.Path
	return json.Marshal(plain(f))
}

// MarshalJSON implements [json.Marshaler].
func (s SettingPlan) MarshalJSON() ([]byte, error) {
	type plain SettingPlan
	s.Path = "/" + s.Path
	return json.Marshal(plain(s))
}

// MarshalJSON implements [json.Marshaler].
func (f FileReport) MarshalJSON() ([]byte, error) {
	type plain FileReport
	f.Path = "/" + f.Path
	return json.Marshal(plain(f))
}

// MarshalJSON implements [json.Marshaler].
func (k Kept) MarshalJSON() ([]byte, error) {
	type plain Kept
	k.Path = "/" + k.Path
	return json.Marshal(plain(k))
}
