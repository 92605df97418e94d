import{b as t,E as a}from"./ui-CT8jbBbe.js";function r(){return t(a,{title:"mcp"})}export{r as default};
