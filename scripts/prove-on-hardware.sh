#!/bin/sh
# Runs, on a node with hardware that the tests of kata-vfio don't have, the experiments of deploy/hardware-checklist.md. By default it
# only reads. With --ask it offers the experiments that change a device, one by one, and takes each change back. It writes one archive:
# the results, and a copy of the node that `kata-vfio-audit eval` reads.
set -eu

root=${KATA_VFIO_ROOT:-} # of the node's /sys and /usr, for tests
audit=${KATA_VFIO_AUDIT:-kata-vfio-audit}
address=${KATA_VFIO_FABRIC:-unix:/run/kata-vfio-fabric/fabricmanager.sock} # of Fabric Manager's API
ask=no partition='' out=kata-vfio-hardware.tar.gz

usage() {
	cat <<-'END'
	prove-on-hardware.sh [--ask] [--partition ID] [--file FILE]

	  --ask            offer experiments that change a device: each says what it does, and waits for "yes"
	  --partition ID   a fabric partition that no VM uses, for the experiment that activates it
	  --file FILE      archive to write (default kata-vfio-hardware.tar.gz)

	Run it as root on a node without tenants. kata-vfio-audit must be in PATH, or in KATA_VFIO_AUDIT. On an HGX board, kata-vfio-fabric and
	kata-vfio-bootstrap must be there too; KATA_VFIO_FABRIC is the address of Fabric Manager if bootstrap has not set it up.
	Exit codes: 0 everything is as expected, 1 it could not run, 2 the command line is wrong, 3 something differs.
	END
}

fail() {
	echo "prove-on-hardware.sh: $1" >&2
	exit "${2:-1}"
}

while [ $# -gt 0 ]; do
	case $1 in
	--ask) ask=yes; shift ;;
	--partition | --file)
		[ $# -ge 2 ] && [ -n "$2" ] || fail "$1 needs a value" 2
		case $1 in --partition) partition=$2 ;; *) out=$2 ;; esac
		shift 2 ;;
	--help | -h) usage; exit 0 ;;
	*) fail "unknown argument $1; see --help" 2 ;;
	esac
done
case $partition in *[!0-9]*) fail "--partition is a number" 2 ;; esac
command -v "$audit" >/dev/null 2>&1 || [ -x "$audit" ] || fail "kata-vfio-audit is not in PATH; set KATA_VFIO_AUDIT to its path"
[ "$ask" = no ] || command -v fuser >/dev/null 2>&1 || fail "--ask needs fuser, which finds the processes that have a device open (package psmisc)"

work=$(mktemp -d)
restore='' # commands that take a change back if the script ends in the middle
trap 'eval "$restore"; rm -rf "$work"' EXIT
trap 'exit 129' HUP # the end of an SSH session
trap 'exit 130' INT
trap 'exit 131' QUIT
trap 'exit 143' TERM
results=$work/results.txt
differs=0
: >"$results"

say() { printf '%s\n' "$*" | tee -a "$results"; }

# result ID STATE TEXT: one line of the table.
result() {
	say "$(printf '%-4s %-12s %s' "$1" "$2" "$3")"
	[ "$2" != differs ] || differs=$((differs + 1))
}

# keep NAME COMMAND...: the output of a command, which may fail, as a file of the archive.
keep() {
	name=$1; shift
	{ printf '$ %s\n' "$*"; "$@" 2>&1 || printf '(exit code %s)\n' "$?"; } >"$work/$name.txt"
}

# offered ID TEXT: whether the experiment that changes something is wanted.
offered() {
	[ "$ask" = yes ] || { result "$1" "not asked" "$2 (--ask)"; return 1; }
	printf '%s: %s\nThis changes the device for a moment. Type yes to go on: ' "$1" "$2"
	read -r answer || answer=no
	[ "$answer" = yes ] || { result "$1" declined "$2"; return 1; }
}

# compare ID EXPECTED SEEN TEXT
compare() {
	if [ "$2" = "$3" ]; then result "$1" "as expected" "$4: $3"; else result "$1" differs "$4: expected $2, saw $3"; fi
}

# near ID WANTED SEEN TEXT: as compare, and a number may be rounded by an eighth, as the plugin accepts it.
near() {
	case $2/$3 in
	*[!0-9/]* | */ | */0) compare "$@"; return 0 ;;
	esac
	if [ $(($2 > $3 ? $2 - $3 : $3 - $2)) -le $(($2 / 8 > 1 ? $2 / 8 : 1)) ]; then
		result "$1" "as expected" "$4: $3"
	else
		result "$1" differs "$4: $3, which is rounded by more than an eighth of $2"
	fi
}

functions() { ls "$root/sys/bus/pci/devices" 2>/dev/null; }
dir() { printf '%s/sys/bus/pci/devices/%s' "$root" "$1"; }
value() { cat "$(dir "$1")/$2" 2>/dev/null || echo none; }
driver() { basename "$(readlink "$(dir "$1")/driver" 2>/dev/null || echo none)"; }
registers() { sha256sum <"$(dir "$1")/config" | cut -c1-16; }
put() { printf '%s' "$3" >"$(dir "$1")/$2"; } # ADDRESS ATTRIBUTE VALUE

# held says whether a process has the function's VFIO device open.
held() {
	for node in "$(dir "$1")"/vfio-dev/*; do
		[ -e "$node" ] || continue
		! fuser -s "/dev/vfio/devices/$(basename "$node")" 2>/dev/null || return 0
	done
	group=$(basename "$(readlink "$(dir "$1")/iommu_group" 2>/dev/null || echo none)")
	fuser -s "/dev/vfio/$group" 2>/dev/null
}

# idle ADDRESS: whether a reset harms nobody: no process has the function, and no driver of the host has it.
idle() {
	case $(driver "$1") in none | vfio-pci | *[-_]vfio[-_]pci) ;; *) return 1 ;; esac
	[ -e "$(dir "$1")/reset" ] && ! held "$1"
}

# vfs ADDRESS: the VFs of a PF, in the order of their numbers.
vfs() {
	n=0
	while [ -e "$(dir "$1")/virtfn$n" ]; do
		basename "$(readlink "$(dir "$1")/virtfn$n")"
		n=$((n + 1))
	done
}

# busy ADDRESS: whether a process has a VF of the PF: what is tried on one VF can reach the others.
busy() {
	for vf in $(vfs "$1"); do ! held "$vf" || return 0; done
	return 1
}

# chosen FILE: a value of sysfs, and of a list such as "[low] normal" the word in brackets.
chosen() {
	text=$(cat "$1" 2>/dev/null) || return 1
	printf '%s\n' "$text" | sed 's/.*\[\([^]]*\)\].*/\1/'
}

# changed SET BACK FILE VALUE TEXT: sets a value, which the firmware may round, reads it, and takes it back.
changed() {
	[ -e "$3" ] || { result "$1" "no hardware" "$5: this kernel or this GPU does not have it"; return 0; }
	found=$(chosen "$3") || { result "$1" differs "$5 can't be read"; return 0; }
	offered "$1" "set $5 to $4, and back to $found" || return 0
	restore="printf %s '$found' >'$3' || true"
	printf '%s' "$4" >"$3" || true
	near "$1" "$4" "$(chosen "$3" || echo unreadable)" "$5 after $4 was written"
	printf '%s' "$found" >"$3" || true
	compare "$2" "$found" "$(chosen "$3" || echo unreadable)" "$5 as found"
	restore=''
}

node() {
	keep host uname -a
	keep cmdline cat "$root/proc/cmdline"
	if "$audit" --root "${root:-/}" collect --file "$work/node.tgz" >"$work/collect.txt" 2>&1; then
		result H1 "as expected" "the node's copy is node.tgz: kata-vfio-audit eval node.tgz"
	else
		result H1 differs "kata-vfio-audit collect failed; see collect.txt"
	fi
	keep devices "$audit" --root "${root:-/}" devices
}

# vgpus: VFs on NVIDIA's driver.
vgpus() {
	first=''
	for a in $(functions); do
		[ -e "$(dir "$a")/nvidia/current_vgpu_type" ] || continue
		keep "vgpu-$a" head -n 99 "$(dir "$a")/nvidia/current_vgpu_type" "$(dir "$a")/nvidia/creatable_vgpu_types"
		compare V1 nvidia "$(driver "$a")" "driver of the VF $a"
		if [ -d "$(dir "$a")/vfio-dev" ]; then seen=yes; else seen=no; fi
		compare V2 yes "$seen" "NVIDIA's driver has made a VFIO device for $a"
		if [ -z "$first" ] && [ "$(value "$a" nvidia/current_vgpu_type)" = 0 ] && ! held "$a"; then first=$a; fi
	done
	[ -n "$first" ] || { result V3 "no hardware" "no free VF of an NVIDIA GPU"; return 0; }
	# The order of number and name differs between versions of the driver.
	type=$(sed -n -e 's/^ *\([1-9][0-9]*\) *:.*/\1/p' -e 's/^[^:]*: *\([1-9][0-9]*\) *$/\1/p' "$(dir "$first")/nvidia/creatable_vgpu_types" | head -n 1)
	[ -n "$type" ] || { result V3 differs "$first lists no type as \"number : name\" or \"name : number\": $(value "$first" nvidia/creatable_vgpu_types | head -n 1)"; return 0; }
	offered V3 "make $first a vGPU of type $type, end it, and reset the VF" || return 0
	before=$(registers "$first")
	listed=$(value "$first" nvidia/creatable_vgpu_types | sha256sum | cut -c1-16)
	restore="put $first nvidia/current_vgpu_type 0 || true"
	put "$first" nvidia/current_vgpu_type "$type" || true
	compare V3 "$type" "$(value "$first" nvidia/current_vgpu_type)" "type after it was written"
	put "$first" nvidia/current_vgpu_type 0 || true
	compare V4 0 "$(value "$first" nvidia/current_vgpu_type)" "type after 0 was written"
	restore=''
	if put "$first" reset 1; then seen=done; else seen=refused; fi
	compare V5 "done" "$seen" "reset of a VF without a type, on NVIDIA's driver"
	compare V6 "$before" "$(registers "$first")" "registers after type 0 and reset"
	compare V7 nvidia "$(driver "$first")" "driver after all of that"
	restore="put $first nvidia/current_vgpu_type 0 || true"
	put "$first" nvidia/current_vgpu_type "$type" || true
	compare V8 "$type" "$(value "$first" nvidia/current_vgpu_type)" "the same type after the reset"
	put "$first" nvidia/current_vgpu_type 0 || true
	compare V9 0 "$(value "$first" nvidia/current_vgpu_type)" "type after 0 was written again"
	restore=''
	keep "vgpu-$first-after" cat "$(dir "$first")/nvidia/creatable_vgpu_types"
	compare V10 "$listed" "$(value "$first" nvidia/creatable_vgpu_types | sha256sum | cut -c1-16)" "list of creatable types after all of that"
}

# xe: VFs of Intel GPUs.
xe() {
	for profile in "$root"/sys/bus/pci/devices/*/sriov_admin/vf1/profile; do
		[ -d "$profile" ] || { result X1 "no hardware" "no Intel GPU with VFs on driver xe"; return 0; }
		pf=$(basename "$(dirname "$(dirname "$(dirname "$profile")")")")
		keep "xe-$pf" grep -r . "$(dir "$pf")/sriov_admin"
		compare X1 xe "$(driver "$pf")" "driver of the GPU $pf"
		xe_values "$pf"
		! busy "$pf" || { result X2 "not asked" "experiments with VFs of $pf: a process has one of them"; continue; }
		changed X2 X3 "$profile/exec_quantum_ms" 21 "exec_quantum_ms of VF 1 of $pf"
		changed X5 X6 "$profile/preempt_timeout_us" 41003 "preempt_timeout_us of VF 1 of $pf"
		changed X7 X8 "$profile/exec_quantum_ms" 100000 "exec_quantum_ms of VF 1 of $pf, the most that the node config permits"
		xe_priority "$pf" "$profile/sched_priority"
		xe_idle "$pf"
	done
}

# xe_values PF: whether the plugin can read the values of each VF. The kernel refuses to if the tiles of a GPU have different ones.
xe_values() {
	bad='' endless=0
	for vf in "$(dir "$1")"/sriov_admin/vf[0-9]*; do
		for name in exec_quantum_ms preempt_timeout_us; do
			seen=$(chosen "$vf/profile/$name" || true)
			case $seen in
			0) endless=$((endless + 1)) ;;
			'' | *[!0-9]*) bad="$bad $(basename "$vf")/$name" ;;
			esac
		done
		[ ! -e "$vf/profile/sched_priority" ] || case $(chosen "$vf/profile/sched_priority" || true) in
		low | normal) ;;
		*) bad="$bad $(basename "$vf")/sched_priority" ;;
		esac
	done
	if [ -z "$bad" ]; then
		result X4 "as expected" "values of all VFs of $1 are readable; $endless of them set no bound of time"
	else
		result X4 differs "values of VFs of $1 that are missing or have another form:$bad"
	fi
}

# xe_priority PF FILE: the firmware of today's GPUs gives all VFs one priority, and the kernel then lets nobody write the file.
xe_priority() {
	if [ -e "$2" ] && [ -z "$(find "$2" -perm /222)" ]; then
		result X9 "as expected" "sched_priority of VF 1 of $1 is fixed: claims are refused where the node config has another priority"
		return 0
	fi
	case $(chosen "$2" || true) in normal) other=low ;; *) other=normal ;; esac
	changed X9 X10 "$2" "$other" "sched_priority of VF 1 of $1"
}

# xe_idle PF: the experiments that would harm a user of the VF. xe counts its VFs from 1.
xe_idle() {
	free='' number=0
	for vf in $(vfs "$1"); do
		number=$((number + 1))
		! idle "$vf" || { free=$vf; break; }
	done
	[ -n "$free" ] || { result X11 "not asked" "memory and stop of a VF: none of $1 is free, and on vfio-pci or no driver"; return 0; }
	admin=$(dir "$1")/sriov_admin/vf$number
	memory=$(chosen "$admin/profile/vram_quota" || true)
	case $memory in
	'' | 0 | *[!0-9]*) result X11 "no hardware" "vram_quota of VF $number of $1: it has no memory of its own" ;;
	*) changed X11 X12 "$admin/profile/vram_quota" $((memory / 2 + 1)) "vram_quota of VF $number of $1" ;;
	esac
	xe_stop "$free" "$admin"
}

# bounds DIRECTORY: the bounds of time of a VF, in one line.
bounds() { cat "$1/profile/exec_quantum_ms" "$1/profile/preempt_timeout_us" 2>&1 | tr '\n' ' '; }

# xe_stop ADDRESS DIRECTORY: ends what a VF executes, and resets it, as the plugin does between two tenants. The reset ends the stop.
xe_stop() {
	offered X13 "stop the VF $1, and reset it" || return 0
	before=$(registers "$1") found=$(bounds "$2")
	if [ -e "$2/stop" ]; then
		restore="put $1 reset 1 || true"
		if printf 1 >"$2/stop"; then seen=done; else seen=refused; fi
		compare X13 "done" "$seen" "stop of $1"
	else
		result X13 "no hardware" "stop of $1: the kernel is older than Linux 6.19"
	fi
	if put "$1" reset 1; then seen=done; else seen=refused; fi
	compare X14 "done, $before" "$seen, $(registers "$1")" "reset of $1, after its stop if it has one, and its registers"
	compare X15 "$found" "$(bounds "$2")" "bounds of time of $1 after its reset"
	restore=''
}

# gim: VFs of AMD GPUs.
gim() {
	[ -d "$root/sys/module/gim" ] || { result A1 "no hardware" "driver gim is not loaded"; return 0; }
	keep gim grep -r . "$root/sys/module/gim/parameters"
	for a in $(functions); do
		[ "$(driver "$a")" = gim ] && [ -e "$(dir "$a")/sriov_numvfs" ] || continue
		# No other files: a read of gim's reset_gpu resets the GPU.
		keep "gim-$a" head -n 99 "$(dir "$a")/device" "$(dir "$a")/sriov_numvfs" "$(dir "$a")/sriov_vf_device" "$(dir "$a")/resource" \
			"$(dir "$a")/spatial_partition_mode" "$(dir "$a")/memory_partition_mode"
		# A V710 (7460) is shared in time, and has up to 12.
		case $(value "$a" device)/$(value "$a" sriov_numvfs) in
		*/1 | */2 | */8 | 0x7460/[1-9] | 0x7460/1[0-2]) result A1 "as expected" "number of VFs of $a: $(value "$a" sriov_numvfs)" ;;
		*) result A1 differs "number of VFs of $a: expected 1, 2 or 8 (V710: 1 to 12), saw $(value "$a" sriov_numvfs)" ;;
		esac
		divided=$(partition_of "$a")
		case $divided in
		[SDTQC]PX/NPS[1248]) result A2 "as expected" "$a is divided as $divided" ;;
		*) result A2 differs "partition of $a: expected such as CPX/NPS4, saw $divided" ;;
		esac
		gim_resets "$a"
		gim_memory "$a"
	done
}

# partition_of ADDRESS: how gim has divided a GPU, such as CPX/NPS4.
partition_of() { printf '%s/%s' "$(value "$1" spatial_partition_mode)" "$(value "$1" memory_partition_mode | sed -n '1s/^memory_partition_mode: *//p')"; }

# ids_of ADDRESS: vendor and device in the registers, which are all ff when a GPU does not answer.
ids_of() { head -c 4 "$(dir "$1")/config" | od -An -tx1 | tr -d ' \n'; }

# gim_resets PF: the reset of each VF that nothing uses, and the GPU after them.
gim_resets() {
	all=''
	for vf in $(vfs "$1"); do ! idle "$vf" || all="$all $vf"; done
	[ -n "$all" ] || { result A3 "not asked" "reset VFs of $1: none is free, and on vfio-pci or no driver"; return 0; }
	! busy "$1" || { result A3 "not asked" "reset VFs of $1: a process has one of them"; return 0; }
	offered A3 "reset VFs of $1, three times each:$all" || return 0
	divided=$(partition_of "$1") gpu=$(ids_of "$1")
	for vf in $all; do
		before=$(registers "$vf") seen=done
		for _ in 1 2 3; do put "$vf" reset 1 || seen=refused; done
		compare A3 "done, $before" "$seen, $(registers "$vf")" "three resets of $vf, and its registers"
		[ "$(ids_of "$1")" = "$gpu" ] || break # the GPU is lost: spare the other VFs
	done
	compare A4 "$divided" "$(partition_of "$1")" "partition of $1 after resets of its VFs"
	compare A5 "$gpu" "$(ids_of "$1")" "vendor and device in the registers of $1 after resets of its VFs"
}

# published DEVICE VFS: the memory of a VF in MiB, as the plugin publishes it for a model and its number of VFs; nothing if it does not.
published() {
	case $1/$2 in
	0x74a1/[18]) gib=192 ;;
	0x74a5/1) gib=256 ;;
	0x75a[03]/[128]) gib=288 ;;
	0x740f/1) gib=64 ;;
	*) return 0 ;;
	esac
	echo $((gib * 1024 / $2))
}

# gim_memory PF: the memory of each VF by AMD's tool, which takes a part for the driver, beside what the plugin publishes.
gim_memory() {
	mib=$(published "$(value "$1" device)" "$(value "$1" sriov_numvfs)")
	[ -n "$mib" ] || { result A6 "no hardware" "memory of the VFs of $1: the plugin publishes none for this model and number"; return 0; }
	command -v amd-smi >/dev/null 2>&1 || { result A6 "not asked" "compare the memory of the VFs of $1 with AMD's amd-smi, which is not in PATH"; return 0; }
	for vf in $(vfs "$1"); do
		keep "amd-smi-$vf" amd-smi static "--vf=$vf"
		size=$(sed -n 's/^ *FB_SIZE: *\([0-9][0-9]*\) *MB *$/\1/p' "$work/amd-smi-$vf.txt" | head -n 1)
		if [ -n "$size" ] && [ "$size" -le "$mib" ] && [ "$size" -ge $((mib - mib / 16)) ]; then
			result A6 "as expected" "$vf has $size MB, and the plugin publishes $mib"
		else
			result A6 differs "$vf has ${size:-an unknown number of} MB, and the plugin publishes $mib"
		fi
	done
}

# call REQUEST: one call to Fabric Manager, as the plugin makes it. The answer is a line of JSON.
call() { printf '{"address": "%s", "timeoutMs": 3000, %s}' "$address" "$1" | timeout 60 kata-vfio-fabric; }

# ids: the numbers of the partitions in a list of kata-vfio-fabric or of fmpm, in one line.
ids() { tr -d ' \n' <"$1" | grep -o "\"$2\":[0-9]*" | cut -d: -f2 | sort -n | tr '\n' ' '; }

# active ID: whether a new list has the partition as active.
active() {
	case $(call '"call": "list"' 2>/dev/null) in
	*"\"id\":$1,\"active\":true"*) echo yes ;;
	*"\"id\":$1,\"active\":false"*) echo no ;;
	*) echo unknown ;;
	esac
}

# actives: the numbers of the active partitions in a new list, in one line.
actives() { call '"call": "list"' 2>/dev/null | tr -d ' \n' | grep -o '"id":[0-9]*,"active":true' | cut -d: -f2 | cut -d, -f1 | sort -n | tr '\n' ' '; }

# gpu ID: the address of a GPU of the partition, by the map of modules.
gpu() {
	module=$(tr -d ' \n' <"$work/fabric.txt" | grep -o "\"id\":$1,[^]]*" | grep -o '"module":[0-9]*' | head -n 1 | cut -d: -f2)
	awk -v module="$module" '$1 == module { print $2; exit }' "$work/modules.txt"
}

milliseconds() { date +%s%3N; }

# fabric: Fabric Manager of an HGX board, by the program that the plugin uses. NVIDIA's fmpm, where it is installed, must say the same.
fabric() {
	command -v kata-vfio-fabric >/dev/null 2>&1 || { result F1 "no hardware" "kata-vfio-fabric is not installed (make fabric)"; return 0; }
	keep fabric-config cat "$root/usr/share/nvidia/nvswitch/fabricmanager.cfg"
	keep fabric call '"call": "list"'
	if grep -q '"partitions":\[{' "$work/fabric.txt"; then
		result F1 "as expected" "kata-vfio-fabric lists partitions"
	else
		result F1 differs "kata-vfio-fabric listed no partitions; see fabric.txt"
	fi
	keep nvidia-smi nvidia-smi -q
	fabric_proc
	keep modules kata-vfio-bootstrap modules
	if grep -q 'exit code' "$work/modules.txt"; then
		result F4 differs "kata-vfio-bootstrap modules has no map; see modules.txt"
	else
		result F4 "as expected" "kata-vfio-bootstrap modules has the map of modules"
	fi
	if command -v fmpm >/dev/null 2>&1; then
		keep fmpm fmpm -l
		compare F5 "$(ids "$work/fabric.txt" id)" "$(ids "$work/fmpm.txt" partitionId)" "partitions of fmpm -l"
	else
		result F5 "not asked" "compare with NVIDIA's fmpm, which is not installed"
	fi
	[ -n "$partition" ] || { result F2 "not asked" "activate a partition (--partition ID --ask)"; return 0; }
	[ "$(active "$partition")" = no ] || { result F2 "not asked" "partition $partition is not listed as inactive: a VM may use it"; return 0; }
	offered F2 "activate partition $partition, and deactivate it" || return 0
	restore="call '\"call\": \"deactivate\", \"id\": $partition' >/dev/null 2>&1 || true"
	begun=$(milliseconds)
	keep fabric-activate call '"call": "activate", "id": '"$partition"
	took=$(($(milliseconds) - begun))
	compare F2 yes "$(active "$partition")" "partition $partition is active after kata-vfio-fabric activated it"
	keep fabric-active call '"call": "list"'
	if [ "$took" -lt 45000 ]; then
		result F6 "as expected" "activation of partition $partition took $took ms"
	else
		result F6 differs "activation of partition $partition took $took ms, expected less than 45000"
	fi
	reset_active "$(gpu "$partition")"
	keep fabric-deactivate call '"call": "deactivate", "id": '"$partition"
	compare F3 no "$(active "$partition")" "partition $partition is active after kata-vfio-fabric deactivated it"
	restore=''
}

# fabric_proc: whether the kernel's files of a GPU have its module, which only nvidia-smi shows as far as known.
fabric_proc() {
	[ -d "$root/proc/driver/nvidia/gpus" ] || { result F9 "no hardware" "NVIDIA's driver has no GPU"; return 0; }
	keep proc-gpus grep -rh : "$root/proc/driver/nvidia/gpus"
	if grep -qi 'module id' "$work/proc-gpus.txt"; then seen=yes; else seen=no; fi
	compare F9 no "$seen" "/proc/driver/nvidia/gpus has a Module ID"
}

# reset_active ADDRESS: whether a partition stays active when one of its GPUs is reset, as VFIO does when a VM opens it.
reset_active() {
	if [ -z "$1" ] || [ "$(driver "$1")" != vfio-pci ] || [ ! -e "$(dir "$1")/reset" ] || held "$1"; then
		result F7 "not asked" "reset a GPU of the active partition: none is known that is free and on vfio-pci"
		return 0
	fi
	offered F7 "reset $1 while partition $partition is active" || return 0
	put "$1" reset 1 || true
	compare F7 yes "$(active "$partition")" "partition $partition is active after a reset of $1"
	keep fabric-reset call '"call": "list"'
}

# fabric_restart: whether Fabric Manager resumes, and the plugin tells it the partitions of claims.
fabric_restart() {
	command -v kata-vfio-fabric >/dev/null 2>&1 || return 0
	before=$(actives)
	[ -n "$before" ] || { result F8 "not asked" "restart Fabric Manager while a test pod has a partition: none is active"; return 0; }
	offered F8 "restart nvidia-fabricmanager; no tenant, only a test pod, may have partitions (active: $before)" || return 0
	keep fabric-restart systemctl restart nvidia-fabricmanager
	tries=0
	while [ "$(actives)" != "$before" ] && [ "$tries" -lt 18 ]; do
		tries=$((tries + 1))
		sleep "${KATA_VFIO_PAUSE:-5}"
	done
	compare F8 "$before" "$(actives)" "active partitions after a restart of Fabric Manager"
	keep fabric-restarted call '"call": "list"'
}

# resets: each method of functions on vfio-pci that no process has open.
resets() {
	tried=no
	for a in $(functions); do
		case $(value "$a" class) in 0x0300* | 0x0302* | 0x0380* | 0x1200*) ;; *) continue ;; esac
		[ "$(driver "$a")" = vfio-pci ] && [ -e "$(dir "$a")/reset" ] && ! held "$a" || continue
		tried=yes
		offered R1 "reset $a four times by $(value "$a" reset_method | cut -d' ' -f1)" || continue
		before=$(registers "$a")
		put "$a" reset 1 || true
		compare R1 "$before" "$(registers "$a")" "registers of $a after a reset"
		for _ in 1 2 3; do put "$a" reset 1 || true; done
		compare R2 "$before" "$(registers "$a")" "registers of $a after three more resets"
	done
	[ "$tried" = yes ] || result R1 "no hardware" "no free GPU on vfio-pci"
}

say "kata-vfio on hardware, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
node
vgpus
xe
gim
fabric
fabric_restart
resets
tar -C "$work" -czf "$out" .
chmod 600 "$out"
echo "Written to $out. See deploy/hardware-checklist.md for what each line means."
[ "$differs" -eq 0 ] || exit 3
