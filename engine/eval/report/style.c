/* eval/report/style.c - see eval/report/style.h. Colours are defined once, as variables, in a light and a dark set, with a contrast of at
 * least 4.5 between text and background in both. Right is blue and wrong is orange, which people with red-green colour blindness can tell
 * apart. */
#include "eval/report/style.h"

static const char *const SHEET[] = {
  /* Colours. */
  ":root{color-scheme:light dark;--paper:#fdfdfb;--panel:#f1f2ee;--line:#dfe1da;--ink:#171b21;--soft:#565f6b;--right:#1f62c4;"
  "--wrong:#c4460f;--fragile:#d99a00;--limit:#8a5a00;--seal1:#1f62c4;--seal2:#171b21;--seal3:#c4460f}\n"
  "@media(prefers-color-scheme:dark){:root{--paper:#0f1216;--panel:#1a1f26;--line:#2b323b;--ink:#e9ecef;--soft:#9ba6b3;"
  "--right:#6aa7ff;--wrong:#ff8f5a;--fragile:#e8b93c;--limit:#f0c659;--seal1:#6aa7ff;--seal2:#e9ecef;--seal3:#ff8f5a}}\n",
  /* Page and text. */
  "*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}\n"
  "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',"
  "Arial,sans-serif;font-variant-numeric:tabular-nums}\n"
  ".page{max-width:1240px;margin:0 auto;padding:0 32px 64px}\n"
  "code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace;font-size:.86em}\n"
  "h1{font-size:clamp(1.9rem,4.6vw,3rem);line-height:1.1;letter-spacing:-.022em;font-weight:680;margin:0 0 .35em;overflow-wrap:anywhere}\n"
  "h2{font-size:1.2rem;line-height:1.25;letter-spacing:-.01em;font-weight:660;margin:0 0 .5em}\n"
  "h3{font-size:1rem;font-weight:640;margin:2em 0 .5em}p{margin:0 0 .8em}.soft,small,caption{color:var(--soft)}small{font-size:.86em}\n"
  "bdi{overflow-wrap:anywhere}th small{font-weight:400;display:block}\n",
  /* Head. */
  "header{display:flex;gap:32px;align-items:flex-start;justify-content:space-between;padding:44px 0 28px}\n"
  ".brand{font-size:.8rem;font-weight:640;letter-spacing:.14em;text-transform:uppercase;color:var(--soft);margin:0 0 1.3em}\n"
  ".lead{font-size:1.08rem;color:var(--soft);max-width:60em;margin:0}.lead b{color:var(--ink);font-weight:600}\n"
  ".seal{width:104px;height:104px;flex:none;border-radius:10px;background:var(--panel);padding:10px}\n"
  ".seal1{fill:var(--seal1)}.seal2{fill:var(--seal2)}.seal3{fill:var(--seal3)}\n"
  ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:22px 32px;margin:0;padding:20px 0;"
  "border:solid var(--line);border-width:1px 0}.tiles dt{color:var(--soft);font-size:.86rem}\n"
  ".tiles dd{margin:0}.tiles .big{font-size:2.15rem;font-weight:640;letter-spacing:-.03em;line-height:1.25}\n",
  /* Sections: heading at the left, content at the right. */
  "section{display:grid;grid-template-columns:minmax(0,230px) minmax(0,1fr);gap:16px 48px;padding:40px 0;"
  "border-bottom:1px solid var(--line)}\n"
  ".about{font-size:.92rem;color:var(--soft)}.about h2{color:var(--ink)}.body{min-width:0}\n"
  "dl.proof{display:grid;grid-template-columns:auto minmax(0,1fr) auto minmax(0,1fr);gap:.45em 18px;margin:0 0 1.4em;"
  "align-items:baseline}\n"
  ".proof dt{color:var(--soft);font-size:.92rem}.proof dd{margin:0;overflow-wrap:anywhere}\n"
  "pre{background:var(--panel);border-radius:8px;padding:14px 16px;margin:0 0 1em;overflow:auto;max-height:30em;line-height:1.5;"
  "white-space:pre-wrap;overflow-wrap:anywhere}\n"
  "details{border-top:1px solid var(--line);padding:10px 0}details:last-child{border-bottom:1px solid var(--line)}\n"
  "summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}details[open] summary{margin-bottom:12px}\n",
  /* Tables. */
  "table{width:100%;border-collapse:collapse;margin:0 0 1.6em}caption{text-align:left;padding:0 0 8px;font-size:.92rem}\n"
  "th{font-weight:560;text-align:left;color:var(--soft);font-size:.82rem;vertical-align:bottom}\n"
  "th,td{padding:7px 14px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}th:last-child,td:last-child{padding-right:0}\n"
  "tbody th{color:var(--ink);font-size:1em;vertical-align:top;overflow-wrap:anywhere}\n"
  ".num{text-align:right;white-space:nowrap}.strips{width:27%;min-width:110px}.strips~.strips,.strips:has(~.strips){width:20%}\n"
  "tbody th{min-width:9.5em}.sub th{font-weight:400;padding-left:18px}\n"
  ".group th{font-weight:700}.member th{padding-left:18px}.inner th{padding-left:36px}\n"
  ".body h3:first-child{margin-top:0}.yes small,.no small{font-weight:400;white-space:normal}\n"
  ".text{min-width:9em;max-width:22em}.text bdi{display:inline-block;max-width:100%;max-height:9em;overflow:auto;"
  "vertical-align:top}.in,.in bdi{display:block}.whole{white-space:nowrap}\n"
  ".yes{color:var(--right)}.no{color:var(--wrong)}.yes,.no{font-weight:600;white-space:nowrap}\n"
  ".scale{display:flex;justify-content:space-between}\n",
  /* Figures. */
  "svg{display:block}.defs{position:absolute;width:0;height:0}.strip{overflow:visible}.chart{overflow:visible;margin:6px 0 4px}\n"
  ".right{fill:var(--right)}.wrong{fill:var(--wrong)}.fragile{fill:var(--fragile)}.panel{fill:var(--panel)}.track{fill:var(--line)}\n"
  ".ring{stroke:var(--paper);stroke-width:1.5}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.needle{stroke:var(--ink);stroke-width:2}\n"
  ".limit{stroke:var(--limit);stroke-width:1.5;stroke-dasharray:4 3}.limitname{fill:var(--limit);font-size:12.5px;font-weight:600}\n"
  ".tick{fill:var(--soft);font-size:12px;paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}\n"
  ".curve{fill:none;stroke-width:2.5;stroke-linejoin:round}.rightline{stroke:var(--right)}.wrongline{stroke:var(--wrong)}\n"
  ".legend{display:flex;flex-wrap:wrap;gap:6px 22px;margin:0 0 6px;padding:0;list-style:none;font-size:.9rem}\n"
  ".legend svg{display:inline-block;width:14px;height:12px;margin-right:7px;vertical-align:-1px}\n"
  "footer{padding:28px 0 0;color:var(--soft);font-size:.88rem;max-width:52em}\n",
  /* Phones: one column; table rows become blocks whose cells carry their own labels. */
  "@media(max-width:760px){.page{padding:0 18px 48px}header{padding:28px 0 22px;gap:16px}.seal{width:64px;height:64px;padding:6px}\n"
  "section{grid-template-columns:minmax(0,1fr);padding:30px 0}.tiles{grid-template-columns:1fr 1fr;gap:16px}\n"
  ".tiles .big{font-size:1.6rem}dl.proof{grid-template-columns:minmax(0,1fr);gap:0}\n"
  ".proof dd{margin:0 0 .6em}thead{display:none}table,tbody,caption{display:block}\n"
  "tr{display:flex;flex-wrap:wrap;gap:2px 14px;padding:10px 0;border-bottom:1px solid var(--line);align-items:baseline}\n"
  "th,td{border:0;padding:0}\n"
  "tbody th{flex:1 1 100%}.member th,.sub th{padding-left:12px}\n"
  ".inner th{padding-left:24px}tbody th:has(bdi:empty){display:none}.strips{flex:1 1 100%;width:auto}\n"
  ".num{text-align:left}.text{flex:1 1 100%;max-width:none}\n"
  "td[data-name]::before{content:attr(data-name);display:block;color:var(--soft);font-size:.78rem}\n"
  "td:empty{display:none}.scale{display:none}\n"
  /* One under the other, with a place for a count that a row lacks. */
  ".scores tr{column-gap:8px}.scores td[data-name=items]{flex:0 0 2.2em}.scores td[data-name=metric]{flex:0 0 5.4em;"
  "overflow-wrap:anywhere}\n"
  ".scores td[data-name=score]{flex:0 0 4em}.scores td[data-name^='95']{flex:1}.scores td[data-name^='95'] small{display:block}\n"
  ".scores td[data-name=items]:empty{display:block;visibility:hidden}}\n"
  "@media print{body{font-size:11pt}section{break-inside:avoid-page}pre{max-height:none}.text bdi{max-height:none}}\n",
};

void eval_report_style_put(FILE *to) {
  for (size_t i = 0; i < ARRAY_LEN(SHEET); i++) fputs(SHEET[i], to);
}
