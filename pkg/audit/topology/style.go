package topology

// style holds the colours. Custom properties would be shorter, but not every
// renderer knows them.
const style = `
text{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,"Liberation Mono",monospace;fill:#1f2328}
.title{font:bold 20px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif}
.head{font:bold 13px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif}
.panel-title{fill:#59636e}
.strong{font-size:12px;font-weight:bold}
.body{font-size:11px}
.small{font-size:10px}
text.muted{fill:#59636e}
text.bad{fill:#b3111d;font-weight:bold}
text.warn{fill:#7d4e00;font-weight:bold}
text.group{fill:#4250b5}
.page{fill:#fff}
.panel{fill:#f6f8fa;stroke:#d8dee4}
.link{fill:none;stroke:#8c959f;stroke-width:1.5}
.outline{fill:#5e6ad2;fill-opacity:.06;stroke:#5e6ad2;stroke-width:1.5}
.card{fill:#fff;stroke:#afb8c1}
.bridge,.chip{fill:#f0f2f5}
.good>.cell,.good>.dot{fill:#e6f6ea;stroke:#1a7f37}
.warn>.cell,.warn>.dot{fill:#fff4d6;stroke:#9a6700}
.bad>.card{stroke:#cf222e}
.bad>.card:not(.chip),.culprit>.card{fill:#fff0ef}
.bad>.chip{stroke:#afb8c1}
.culprit>.card{stroke:#cf222e}
.good .bar,.good .disc{fill:#1a7f37}
.none .bar,.none .disc{fill:#6e7781}
.warn .bar,.warn .disc{fill:#9a6700}
.bad .bar,.bad .disc{fill:#cf222e}
.mark{fill:none;stroke:#fff;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
@media screen and (prefers-color-scheme:dark){
text{fill:#e6edf3}
.panel-title,text.muted{fill:#9aa4af}
text.bad{fill:#ff8f87}
text.warn{fill:#e3b341}
text.group{fill:#a8b1ff}
.page{fill:#0d1117}
.panel{fill:#151b23;stroke:#2b323b}
.link{stroke:#6e7681}
.outline{fill:#8b95f0;fill-opacity:.08;stroke:#7580e6}
.card{fill:#1f262e;stroke:#4a535d}
.bridge,.chip{fill:#262c34}
.good>.cell,.good>.dot{fill:#12301c;stroke:#2ea043}
.warn>.cell,.warn>.dot{fill:#3a2c07;stroke:#bb8009}
.bad>.card{stroke:#f85149}
.bad>.card:not(.chip),.culprit>.card{fill:#3a1a1c}
.bad>.chip{stroke:#4a535d}
.culprit>.card{stroke:#f85149}
.good .bar,.good .disc{fill:#2ea043}
.none .bar,.none .disc{fill:#768390}
.warn .bar,.warn .disc{fill:#bb8009}
.bad .bar,.bad .disc{fill:#da3633}
}
`
