// The order of what a search finds: pages to begin with, then the guide, then what is generated or historic.
const RANKS = [
  [/^docs\/(howto|start)\//, 6],
  [/^(README|CHANGELOG|CONTRIBUTING|SECURITY|benchmarks\/|examples\/|docs\/(api|reference|errors|machine|sql|questions|signals|wishes)$)/, -20],
];

var Scorer = {
  score: ([page, , , , score]) => score + RANKS.reduce((sum, [pages, points]) => sum + (pages.test(page) ? points : 0), 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
