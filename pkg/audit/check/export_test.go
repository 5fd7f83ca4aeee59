package check

// RulesOfCodes is what the tests compare with the table of severities.
var RulesOfCodes = rulesOfCodes
