"""The report's style sheet: light and dark, wide and narrow, screen and paper."""

from headwise.roles import ROLES, UNKNOWN_ROLE

COLOURS = {
    "page": ("#f5f6f9", "#101319"),
    "card": ("#ffffff", "#191e27"),
    "ink": ("#191c22", "#e9ecf2"),
    "soft": ("#525a67", "#aab2c0"),
    "line": ("#d9dee6", "#343c49"),
    "accent": ("#1f5fbf", "#8fb8fa"),
    "track": ("#e4e8ef", "#303846"),
    "note": ("#eef3fb", "#1d2635"),
}
"""Each colour in light and in dark mode."""

RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
header,main,footer,nav{max-width:70rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.5rem}
h1{font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.15;margin:0 0 .5rem;letter-spacing:-.02em}
h2{font-size:1.4rem;line-height:1.25;margin:0 0 .6rem;letter-spacing:-.01em}
h3{font-size:1.08rem;margin:1.6rem 0 .4rem}
h1,h2,h3,p,li,td,th,dd,figcaption{overflow-wrap:break-word}
p{margin:.5rem 0;max-width:50rem}
ul.points{margin:.6rem 0;padding-left:1.2rem;max-width:50rem}
ul.points li{margin:.3rem 0}
a{color:var(--accent)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);
outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:1rem;background:var(--card);padding:.5rem 1rem}
.lead{font-size:1.1rem;color:var(--soft)}
figcaption,caption{color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.75rem;
margin:1.4rem 0 0;padding:0;list-style:none}
.tiles li{background:var(--card);border:1px solid var(--line);border-radius:.75rem;
padding:.8rem 1rem;color:var(--soft);font-size:.88rem;line-height:1.35}
.tiles b{display:block;font-size:1.55rem;line-height:1.2;color:var(--ink);
font-variant-numeric:tabular-nums;letter-spacing:-.01em}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;list-style:none;padding:0;margin:1.2rem 0;
font-size:.94rem}
main>section{background:var(--card);border:1px solid var(--line);border-radius:1rem;
padding:1.5rem 1.6rem;margin:0 0 1.2rem}
.limit{background:var(--note);border-left:3px solid var(--accent);border-radius:.3rem;
padding:.55rem .9rem;max-width:50rem}
.scroll{overflow-x:auto;margin:.8rem 0;max-width:100%}
table{border-collapse:collapse;font-size:.92rem}
caption{caption-side:top;text-align:left;font-size:.9rem;padding:0 0 .45rem}
caption span{display:inline-block;max-width:min(50rem,calc(100vw - 3.4rem))}
table.data{min-width:min(100%,34rem)}
table.data th,table.data td{padding:.32rem .8rem .32rem 0;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top}
table.data thead th{font-weight:600;color:var(--soft);font-size:.84rem;vertical-align:bottom}
table.data tbody th{font-weight:600}
table.data .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
table.data th:first-child{white-space:nowrap}
table.data td:last-child:not(.n){min-width:9rem}
table.grid{border-collapse:separate;border-spacing:2px;font-variant-numeric:tabular-nums}
table.grid th{font-weight:500;color:var(--soft);font-size:.74rem;padding:0 .15rem;min-width:1.5rem}
table.grid tbody th{text-align:right;padding-right:.35rem}
table.grid td{width:2.05rem;min-width:1.6rem;height:2.05rem;text-align:center;padding:0;
font-size:.84rem;font-weight:600;border-radius:.35rem;color:var(--soft)}
table.grid td.has{color:#fff;
background:linear-gradient(315deg,var(--b,var(--a)) 29%,var(--a) 30%)}
table.grid td.none{box-shadow:inset 0 0 0 1px var(--line);font-weight:400}
table.grid td.value{font-size:.74rem;font-weight:500}
.grids{display:flex;flex-wrap:wrap;gap:.4rem 2.4rem;align-items:flex-end}
.legend{display:flex;flex-wrap:wrap;gap:.3rem .9rem;list-style:none;padding:0;margin:.4rem 0;
font-size:.88rem;color:var(--soft)}
.chip{display:inline-block;background:var(--a);color:#fff;border-radius:.35rem;min-width:1.5em;
padding:0 .42em;text-align:center;font-weight:600;font-size:.88em;line-height:1.55}
.role{border-top:1px solid var(--line);margin-top:1.4rem;padding-top:.2rem}
.names{font-variant-numeric:tabular-nums;color:var(--soft);font-size:.92rem}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,23rem),1fr));gap:1rem}
figure{margin:.9rem 0;min-width:0}
figcaption{font-size:.88rem;margin-top:.3rem;max-width:50rem}
figure svg{display:block;max-width:100%;height:auto;fill:var(--ink)}
figure svg>rect[width="100%"]{fill:none}
svg.bar{display:block;width:9rem;height:.85rem;margin-top:.3rem}
svg.bar .track{fill:var(--track)}svg.bar .fill{fill:var(--accent)}
svg.bar .tick{fill:var(--ink);stroke:var(--card);stroke-width:.7}
details{margin:.9rem 0}
summary{cursor:pointer;color:var(--accent);font-weight:500}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.3rem 1.4rem;margin:.6rem 0;
font-size:.94rem}
dt{color:var(--soft)}dd{margin:0;min-width:0;overflow-wrap:anywhere}
blockquote{margin:.6rem 0;padding:0 0 0 1rem;border-left:3px solid var(--line);
font-size:.92rem;max-width:50rem}
footer{padding-top:.4rem;padding-bottom:3rem;color:var(--soft);font-size:.9rem}
"""

NARROW = """
@media(max-width:36rem){body{font-size:15px}header,main,footer,nav{padding-left:.6rem;
padding-right:.6rem}header{padding-top:1.4rem}main>section{padding:1.1rem .8rem;
border-radius:.75rem}.tiles{grid-template-columns:repeat(auto-fit,minmax(6.6rem,1fr));gap:.5rem}
.tiles li{padding:.6rem .7rem}.tiles b{font-size:1.3rem}table{font-size:.86rem}
table.grid{border-spacing:1px}table.grid td{width:1.5rem;min-width:1.36rem;height:1.6rem;
font-size:.74rem}table.grid td.value{font-size:.68rem}table.grid th{min-width:1.2rem;padding:0}
table.grid tbody th{padding-right:.2rem}dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5rem}
svg.bar{width:2.4rem}table.data th,table.data td{padding-right:.45rem}
table.data th:first-child,
table.data thead .n{white-space:normal}
table.data td:last-child:not(.n){min-width:12rem}}
"""

PAPER = """
@media print{:root{LIGHT}html{font-size:11.5px}body{font-size:10pt;background:#fff}
header,main>section{padding:0;margin-bottom:1.5rem}svg.bar{width:7rem}
table.data td:last-child:not(.n){min-width:0}summary{display:none}p,ul.points{max-width:none}
header,main,footer{max-width:none;padding:0}nav,.skip{display:none}
main>section{border:0;border-radius:0}.scroll{overflow:visible}
figure,table.grid,tr,.tiles{break-inside:avoid}h2,h3,caption{break-after:avoid}
.maps{grid-template-columns:1fr 1fr}figure svg{filter:none}
table.grid td,.chip,svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}
a{color:inherit;text-decoration:none}}
"""


def style_sheet() -> str:
    """The whole style sheet. In dark mode, images are inverted but keep their hues."""
    light, dark = (
        "".join(f"--{name}:{colours[mode]};" for name, colours in COLOURS.items())
        for mode in (0, 1)
    )
    roles = "".join(  # colours of a cell's first role (a) and of the corner for its second (b)
        f".a-{role.name}{{--a:{role.page_colour}}}.b-{role.name}{{--b:{role.page_colour}}}"
        for role in (*ROLES.values(), UNKNOWN_ROLE)
    )
    inverted = "figure svg{fill:#191c22;filter:invert(1) hue-rotate(180deg)}"
    parts = [
        f":root{{color-scheme:light dark;{light}}}{RULES}{roles}{NARROW}",
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}{inverted}}}",
        PAPER.replace("LIGHT", light),
    ]
    return "".join(parts).replace("\n", "")
