import{b as t,E as e}from"./ui-CT8jbBbe.js";function r(){return t(e,{title:"schedule"})}export{r as default};
